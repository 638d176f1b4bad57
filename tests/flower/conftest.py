import sys

import pytest


@pytest.fixture(autouse=True)
def forgotten_own_parts():
    """Every test has an app of its own, and all apps call the files of a user `own_parts`."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_parts"]:
        del sys.modules[name]
