"""Small runs that share one shape, and configuration files written on the spot."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedblade
from fedblade.runs import Result

SMALL = {
    "model": "mlp",
    "hidden": [16],
    "dim": 8,
    "method": "fedavg",
    "num_clients": 6,
    "clients_per_round": 3,
    "rounds": 3,
    "epochs": 1,
    "metrics": ["accuracy", "spectrum", "drift"],
}

MINIMAL = """
[dataset]
name = "digits"
[partition]
name = "iid"
[model]
name = "mlp"
[method]
name = "fedavg"
"""


@pytest.fixture
def small_run() -> Callable[..., Result]:
    """Run digits on a tiny perceptron; keywords change the configuration."""

    def run(**changes: Any) -> Result:
        return fedblade.run("quickstart", **(SMALL | changes))

    return run


@pytest.fixture
def toml_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write text as a configuration file and return its path."""

    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def minimal() -> str:
    """The shortest complete configuration."""
    return MINIMAL
