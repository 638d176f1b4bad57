"""What the reader of a file format gives: samples in blocks, in order, each block decoded when it is needed."""

import filecmp
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedblade.core.errors import Misconfigured

Array = npt.NDArray[Any]
"""A NumPy array of any type and shape."""
Ints = npt.NDArray[np.int64]
PartName = Literal["train", "test"]
PARTS: tuple[PartName, PartName] = ("train", "test")


@dataclass(frozen=True)
class Block:
    """Samples that are decoded together: inputs [n, …], labels [n] and, for data in groups, n names of groups."""

    inputs: Array
    labels: Ints
    groups: tuple[str, ...] | None = None


Task = Callable[[], Block]


@dataclass(frozen=True)
class Source:
    """The files of a data set in one of its formats, not yet decoded.

    `files` are all files that the content depends on, `read` gives the blocks of a part in order, `describe` says in a
    few words how the samples are stored, `options` names the settings that change the decoded arrays, and `total` is
    the number of samples if it is known in advance.
    """

    root: Path
    files: tuple[Path, ...]
    read: Callable[[PartName], Iterator[Task]]
    class_names: tuple[str, ...]
    describe: Callable[[], str]
    options: str = ""
    total: int | None = None


def stored_in(what: str, files: Sequence[Path], kind: str) -> str:
    """How samples are stored, in a few words: what the samples are, the number of files and the kind of file."""
    return f"{what} in {len(files):,} {kind} {'file' if len(files) == 1 else 'files'}"


def refuse_twins(train: Sequence[Path], test: Sequence[Path]) -> None:
    """Refuse a file that is in both parts under two names: a test on training samples says nothing."""
    for train_file in train:
        for test_file in test:
            try:
                same = filecmp.cmp(train_file, test_file, shallow=False)
            except OSError:
                continue
            if same:
                raise Misconfigured(
                    f"'{train_file}' and '{test_file}' are the same, byte for byte; expected different samples for "
                    f"training and testing. Download the wrong file again."
                )


def in_order(tasks: Iterator[Task], workers: int) -> Iterator[Block]:
    """Run tasks in threads and give their blocks in order, with few blocks in memory at a time.

    Threads suffice, because image codecs release the interpreter lock.
    """
    waiting: deque[Future[Block]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(task))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
