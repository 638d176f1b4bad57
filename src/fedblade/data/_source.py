"""What a reader of some file format offers: blocks of decoded samples, in order, each made when asked for."""

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
Ints = npt.NDArray[np.int64]
PartName = Literal["train", "test"]
PARTS: tuple[PartName, PartName] = ("train", "test")


@dataclass(frozen=True)
class Block:
    """Some samples: inputs [n, …], labels [n] and, for data that come in groups, the name of each sample's group."""

    inputs: Array
    labels: Ints
    groups: tuple[str, ...] | None = None


Task = Callable[[], Block]


@dataclass(frozen=True)
class Source:
    """Files of a data set in one of its formats, found but not decoded.

    `files` are all files the content depends on, `read` gives the blocks of a part in order, `describe` says in a few
    words how the samples are stored, `options` names the settings that change what is decoded, and `total` is the
    number of samples where it is known beforehand.
    """

    root: Path
    files: tuple[Path, ...]
    read: Callable[[PartName], Iterator[Task]]
    class_names: tuple[str, ...]
    describe: Callable[[], str]
    options: str = ""
    total: int | None = None


def stored_in(what: str, files: Sequence[Path], kind: str) -> str:
    """How samples are stored, in a few words: `what` they are, and the number of files of a `kind` they are in."""
    return f"{what} in {len(files):,} {kind} {'file' if len(files) == 1 else 'files'}"


def refuse_twins(train: Sequence[Path], test: Sequence[Path]) -> None:
    """Refuse a file that is in both parts under two names: testing on training samples says nothing."""
    for one in train:
        for other in test:
            try:
                same = filecmp.cmp(one, other, shallow=False)
            except OSError:
                continue
            if same:
                raise Misconfigured(
                    f"'{one}' and '{other}' are the same, byte for byte; expected different samples for training and "
                    f"testing. Download the wrong one again."
                )


def in_order(tasks: Iterator[Task], workers: int) -> Iterator[Block]:
    """Run tasks in threads and give their blocks in order, with few of them in memory at a time.

    Threads suffice: image codecs and hashes release the interpreter lock.
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
