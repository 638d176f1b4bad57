"""Processes that share a run: they exchange JSON and tensors, and notice when one of them is lost.

Nothing is pickled. JSON travels as bytes. A tree travels as the bytes of its leaves, after a message with their names,
types and shapes. Every exchange runs in a second thread, so that a signal reaches a process that waits for others.
"""

import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fedblade.core.errors import RunFailed
from fedblade.core.tree import Tree
from fedblade.engines.ranks._bytes import Json, Leaves, as_bytes, decoded, encoded, from_bytes, leaves_of, num_bytes
from fedblade.engines.ranks._notices import Notices

T = TypeVar("T")

_PATIENT_DAYS = 30
"""How long a rank waits for work, because rank 0 may measure for hours. A broken connection is noticed at once."""
_CLOSE_SECONDS = 5.0
_RANK_0 = 0
"""The rank that runs the rounds, measures and writes."""


class LostRank(RunFailed):
    """Another rank cannot be reached any more."""


class Ranks:
    """The ranks of a run, as one of them sees them.

    Three process groups carry the exchanges: `_patient` and `_timed` JSON, `_tensors` large tensors.
    """

    def __init__(self, rank: int, world: int, local_rank: int, local_world: int, notices: Notices) -> None:
        self.rank, self.world = rank, world
        self.local_rank, self.local_world = local_rank, local_world
        self.notices = notices
        self.broken = False
        """Whether an exchange was cut short; no other exchange can follow."""
        self.busy = False
        """Whether the ranks work on a request of rank 0. Ranks that do not work wait for a broadcast."""
        self._patient = dist.new_group(backend="gloo", timeout=timedelta(days=_PATIENT_DAYS))
        self._timed = self._tensors = self._patient
        self._device = torch.device("cpu")
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="ranks", daemon=True)
        self._thread.start()

    @property
    def is_rank_0(self) -> bool:
        """Whether this process is rank 0, which runs the rounds."""
        return self.rank == _RANK_0

    def prepare(self, device: torch.device, timeout_seconds: float) -> None:
        """From now on ranks wait `timeout_seconds` for each other at most, and tensors travel from GPU to GPU."""
        timeout = timedelta(seconds=timeout_seconds)
        self._device = device
        self._timed = self._call("setting up", lambda: dist.new_group(backend="gloo", timeout=timeout))
        # A rank may wait long for a broadcast, but rank 0 does not wait long for a rank that does not receive it.
        longest = timeout if self.is_rank_0 else timedelta(days=_PATIENT_DAYS)
        self._patient = self._call("setting up", lambda: dist.new_group(backend="gloo", timeout=longest))
        self._tensors = self._timed
        if device.type == "cuda":
            # Set before the first exchange of a tensor, because that exchange binds this process to its GPU.
            torch.cuda.set_device(device)
            self._call("choosing a GPU", lambda: torch.cuda.set_device(device))
            self._tensors = self._call("setting up NCCL", lambda: dist.new_group(backend="nccl", timeout=timeout))

    def broadcast(self, message: Json, tree: Tree | None = None) -> None:
        """Rank 0: send a message and a tree to all other ranks, which call `receive_broadcast`."""
        sent = tree or {}
        self._broadcast_json({"message": message, "leaves": leaves_of(sent)}, "sending work")
        if sent:
            self._call("sending tensors", lambda: self._broadcast(as_bytes(sent, self._device)))

    def receive_broadcast(self) -> tuple[Json, Tree]:
        """Wait for rank 0's next broadcast: its message and its tree."""
        received = self._broadcast_json(None, "waiting for rank 0")
        leaves: Leaves = received["leaves"]
        if not leaves:
            return received["message"], {}
        data = torch.empty(num_bytes(leaves), dtype=torch.uint8, device=self._device)
        self._call("receiving tensors", lambda: self._broadcast(data))
        return received["message"], from_bytes(data, leaves)

    def gather(self, value: Json) -> list[Json]:
        """The values of all ranks in the order of ranks; every rank gets the list."""
        if not self.is_rank_0:
            self._send_json(value, _RANK_0)
            received: Json = self._broadcast_json(None, "receiving the values of all ranks", self._timed)
            return list(received["all"])
        values = [value, *(self._receive_json(source) for source in range(1, self.world))]
        self._broadcast_json({"all": values}, "sending the values of all ranks", self._timed)
        return values

    def reduce(self, vector: Tensor, kind: str) -> Tensor:
        """The sum or maximum of a vector over all ranks, for every rank; the vector is overwritten."""
        operation = dist.ReduceOp.MAX if kind == "max" else dist.ReduceOp.SUM
        self._call("adding up", lambda: self._wait_for_gpu(dist.all_reduce(vector, operation, group=self._tensors)))
        return vector

    def send(self, tree: Tree, target: int = _RANK_0) -> None:
        """Send a tree to one rank, which must know the tree's leaves."""
        data = as_bytes(tree, torch.device("cpu"))
        if data.numel():
            self._call(f"sending to rank {target}", lambda: dist.send(data, target, group=self._timed))

    def receive(self, leaves: Leaves, source: int) -> Tree:
        """Receive a tree with these leaves from one rank, on the CPU."""
        data = torch.empty(num_bytes(leaves), dtype=torch.uint8)
        if data.numel():
            self._call(f"receiving from rank {source}", lambda: dist.recv(data, source, group=self._timed), source)
        return from_bytes(data, leaves)

    def abort(self) -> None:
        """Cut every exchange short, so that neither this process nor another waits for it."""
        self.broken = True
        for group in {self._patient, self._timed, self._tensors}:
            backend = group._get_backend(torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu"))
            backend.abort()

    def close(self) -> None:
        """Leave the other ranks before the process ends; a thread in an exchange would abort the ending process."""
        if self.broken:
            self.abort()
        self._calls.put(None)
        self._thread.join(_CLOSE_SECONDS)
        if not self.broken and dist.is_initialized():
            dist.destroy_process_group()

    def _broadcast(self, data: Tensor) -> None:
        self._wait_for_gpu(dist.broadcast(data, _RANK_0, group=self._tensors))

    def _wait_for_gpu(self, _work: object) -> None:
        """Wait for an exchange of a GPU, which has only begun when its call returns."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def _broadcast_json(self, value: Any, what: str, group: dist.ProcessGroup | None = None) -> Any:
        chosen = self._patient if group is None else group
        content = encoded(value) if self.is_rank_0 else torch.empty(0, dtype=torch.uint8)
        size = torch.tensor([len(content)])
        source = None if self.is_rank_0 else _RANK_0
        self._call(what, lambda: dist.broadcast(size, _RANK_0, group=chosen), source)
        data = content if self.is_rank_0 else torch.empty(int(size), dtype=torch.uint8)
        self._call(what, lambda: dist.broadcast(data, _RANK_0, group=chosen), source)
        return value if self.is_rank_0 else decoded(data)

    def _send_json(self, value: Json, target: int) -> None:
        content = encoded(value)
        what, size = f"sending to rank {target}", torch.tensor([len(content)])
        self._call(what, lambda: dist.send(size, target, group=self._timed), target)
        self._call(what, lambda: dist.send(content, target, group=self._timed), target)

    def _receive_json(self, source: int) -> Json:
        what, size = f"receiving from rank {source}", torch.zeros(1, dtype=torch.int64)
        self._call(what, lambda: dist.recv(size, source, group=self._timed), source)
        content = torch.empty(int(size), dtype=torch.uint8)
        self._call(what, lambda: dist.recv(content, source, group=self._timed), source)
        value: Json = decoded(content)
        return value

    def _call(self, what: str, call: Callable[[], T], other: int | None = None) -> T:
        """Do an exchange in the second thread and wait for it; `other` is the rank at its other end, if known."""
        results: list[T] = []
        errors: list[Exception] = []
        done = threading.Event()

        def work() -> None:
            try:
                results.append(call())
            except Exception as error:
                errors.append(error)
            done.set()

        self._calls.put(work)
        try:
            done.wait()
        except BaseException:
            # A signal arrived; the exchange cannot be taken back.
            self.broken = True
            raise
        if errors:
            self.broken = True
            raise self._lost(what, other, errors[0]) from errors[0]
        return results[0]

    def _lost(self, what: str, other: int | None, error: Exception) -> LostRank:
        # gloo's message has a position in its source first and advice last; the reason is between them.
        text = str(error).partition("\n")[0].partition(".cc:")[2].partition("] ")[2] or str(error).partition("\n")[0]
        reason = text.partition(". ")[0].strip().rstrip(".") or type(error).__name__
        lost = 1 - self.rank if other is None and self.world == 2 else other
        who = "another rank" if lost is None else f"rank {lost}"
        return LostRank(
            f"rank {self.rank} of {self.world} lost {who} while {what}: {reason}. The finished rounds are saved. "
            f"Run the same command with --resume."
        )

    def _work(self) -> None:
        """The second thread: do one exchange after another."""
        while (work := self._calls.get()) is not None:
            work()
