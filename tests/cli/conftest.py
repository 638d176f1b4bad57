"""The command line as a process: `cli` forks from a warmed one, `fresh_cli` starts Python anew."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.commands import Zygote, plain_environment

SMALL = ("model=mlp", "hidden=[16]", "dim=8", "num_clients=6", "clients_per_round=3", "rounds=3", "epochs=1",
         "metrics=accuracy,spectrum,drift")  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last line printed."""
        return self.out.splitlines()[-1]

    def done(self) -> "Answer":
        """This answer, which must be that of a command that succeeded without a word of complaint."""
        assert (self.status, self.err) == (0, "")
        return self

    def mistake(self) -> str:
        """The one line on stderr of a command that was refused."""
        assert self.status == 2, self
        assert "Traceback" not in self.err
        assert len(self.err.strip().splitlines()) == 1, self.err
        assert "unexpected" not in self.err
        return self.err.strip()


Cli = Callable[..., Answer]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """A process with torch and the library loaded, ready to fork."""
    process = Zygote()
    yield process
    process.close()


@pytest.fixture
def cli(zygote: Zygote, tmp_path: Path) -> Cli:
    """Run `fedblade` with arguments in `tmp_path`; `stdout` is a file that takes its output instead of the answer."""

    def run(*argv: Any, stdout: Path | None = None, **env: str) -> Answer:
        out, err = stdout or tmp_path / ".stdout", tmp_path / ".stderr"
        status = zygote.start(argv, tmp_path, out, err, env).wait()
        return Answer(status, "" if stdout else _taken(out), _taken(err))

    return run


def _taken(path: Path) -> str:
    """The text of a file, which is removed."""
    text = path.read_bytes().decode(errors="surrogateescape")
    path.unlink()
    return text


@pytest.fixture
def fresh_cli(tmp_path: Path) -> Cli:
    """Run `python -m fedblade` with arguments in `tmp_path`; `options` go to Python itself."""

    def run(*argv: Any, options: tuple[str, ...] = (), **env: str) -> Answer:
        done = subprocess.run(
            [sys.executable, *options, "-m", "fedblade", *(str(each) for each in argv)],
            capture_output=True, text=True, cwd=tmp_path, env=plain_environment() | env, check=False,
        )  # fmt: skip
        return Answer(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def small() -> list[str]:
    """Options that make any run tiny."""
    return [part for each in SMALL for part in ("--set", each)]


@pytest.fixture
def write_npz(tmp_path: Path) -> Callable[..., Path]:
    """Write a data set of three classes as `data.npz`; keywords replace arrays."""

    def write(**changes: Any) -> Path:
        rng = np.random.default_rng(0)
        labels = np.arange(60) % 3
        table: dict[str, Any] = {
            "x_train": rng.random((60, 8), dtype=np.float32),
            "y_train": labels,
            "x_test": rng.random((30, 8), dtype=np.float32),
            "y_test": labels[:30],
        }
        np.savez(tmp_path / "data.npz", **(table | changes))
        return tmp_path / "data.npz"

    return write
