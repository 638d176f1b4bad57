"""Run folders that can grow, be torn and be resumed, written as the contract describes them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

CONFIG = """seed = 3
[dataset]
name = "digits"
[partition]
name = "dirichlet"
alpha = 0.1
[federation]
num_clients = 20
rounds = {planned}
[model]
name = "small_cnn"
[method]
name = "{method}"
"""


class RunFolder:
    """A run on disk whose clock the test sets: round r is written at second `start + r * step`."""

    start, step = 1_000_000.0, 2.0

    def __init__(self, path: Path, method: str = "fedblade", planned: int = 60) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.write("config.toml", CONFIG.format(method=method, planned=planned), at=self.start)
        self.write("partition.json", json.dumps({"digest": "d", "counts": [[3, 0], [1, 9]]}), at=self.start)

    def write(self, name: str, text: str, *, at: float) -> None:
        (self.path / name).write_text(text, encoding="utf-8")
        os.utime(self.path / name, (at, at))

    def rounds(self, count: int, *, tail: str = "", at: float | None = None, **changes: Any) -> float:
        """Write a history of `count` rounds and return when the last was written."""
        at = self.start + count * self.step if at is None else at
        lines = [json.dumps(row(number) | changes) for number in range(1, count + 1)]
        self.write("history.jsonl", "".join(f"{line}\n" for line in lines) + tail, at=at)
        return at

    def end(self, status: str, rounds: int, *, at: float, **more: Any) -> float:
        """Write the summary a moment after `at`."""
        summary = {"method": "fedblade", "dataset": "digits", "rounds": rounds, "status": status} | more
        self.write("summary.json", json.dumps(summary), at=at + 0.1)
        return at + 0.1


def row(number: int) -> dict[str, Any]:
    return {
        "round": number,
        "clients": [1, 2],
        "test_accuracy": 90 - 70 / number,
        "test_loss": 2 / number,
        "seconds": 1.5,
        "lr": 0.02,
        "bytes_up": 1000,
        "bytes_down": 2000,
        "erank_feature": 10.0 + number,
        "nc_error": 1 / number,
        "drift_norm": 0.5,
        "update_cosine": None,
        "loss_supervised": 1 / number,
        "count_idle_clients": 1,
        "count_scale_clamped": 0,
    }


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


@pytest.fixture
def make_run(tmp_path: Path):
    return lambda name, **options: RunFolder(tmp_path / "runs" / name, **options)


@pytest.fixture
def untouched(tmp_path: Path):
    """A function that fails if anything below `tmp_path` was written since the last call."""

    def listing() -> dict[str, tuple[int, int, int]]:
        states = {str(path): path.stat() for path in sorted(tmp_path.rglob("*"))}
        return {path: (state.st_mtime_ns, state.st_size, state.st_ino) for path, state in states.items()}

    class Untouched:
        def __enter__(self) -> None:
            self.before = listing()

        def __exit__(self, *_: object) -> None:
            assert listing() == self.before

    return Untouched()
