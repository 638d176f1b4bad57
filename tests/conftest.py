"""One thread per test process, and a data cache of its own.

Small tensors gain nothing from more threads, and two workers share the machine. What a user has decoded must not
change what the tests see.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="fedblade-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

import fedblade  # noqa: E402
from fedblade.runs import Result  # noqa: E402

# Failed assertions in tests/support are explained like those of the tests.
pytest.register_assert_rewrite("support")

torch.set_num_threads(1)
if not torch.cuda.is_available():
    # Triton reads this when it is imported: its interpreter runs kernels without a GPU.
    os.environ.setdefault("TRITON_INTERPRET", "1")
# A change must not fail over an example that another change would not have drawn; fresh examples are for long runs.
hypothesis.settings.register_profile("steady", derandomize=True)
hypothesis.settings.register_profile("fresh", derandomize=False)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

TESTS = Path(__file__).parent
COSTLY = (
    "cards",
    "cli",
    "diagnostics",
    "engines",
    "figures",
    "golden",
    "methods",
    "models",
    "runs",
    "server",
    "studies",
)
"""Folders in which most tests train a model or start a process, and do so for every set of parameters."""

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In costly folders, only the first and the last set of a test's parameters are for `make test`.

    A test that marks some of its sets as thorough or slow has chosen for itself.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in COSTLY:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for sets in tests.values():
        if not any(item.get_closest_marker(name) for item in sets for name in ("thorough", "slow")):
            for item in sets[1:-1]:
                item.add_marker(pytest.mark.thorough)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """`make test-gpu` prints a line for benchmarks/README.md, and tests that draw a new seed have it printed."""
    reports = [report for stored in terminalreporter.stats.values() for report in stored]
    drawn = {value for report in reports for name, value in getattr(report, "user_properties", ()) if name == "seed"}
    for seed in sorted(drawn):
        terminalreporter.write_line(seed)
    if config.getoption("markexpr") == "gpu":
        from support.gpu import line_of

        terminalreporter.write_line(line_of(terminalreporter.stats))
