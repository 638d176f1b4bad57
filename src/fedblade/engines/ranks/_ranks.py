"""Processes that share a run: JSON and tensors between them, and what is said when one of them is lost.

Nothing is pickled. JSON travels as bytes, a tree as the bytes of its leaves, whose names, types and shapes go before in
JSON. Every exchange runs in a thread beside, so that a signal reaches a process that waits for others.
"""

import atexit
import os
import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.core.tree import Tree
from fedblade.engines.ranks._bytes import Json, Leaves, as_bytes, decoded, encoded, from_bytes, leaves_of, num_bytes

T = TypeVar("T")

_START_SECONDS = 600
"""How long processes wait for each other to start."""
_PATIENT_DAYS = 30
"""How long a rank waits for work: rank 0 may measure for hours. That its connection breaks is seen at once."""
_CLOSE_SECONDS = 5.0
LEAD = 0
"""The rank that runs the rounds, measures and writes."""


class Lost(RunFailed):
    """Another rank cannot be reached any more."""


class Ranks:
    """This process among those of a run; `patient` and `timed` are groups for JSON, `tensors` one for large tensors."""

    def __init__(self, rank: int, world: int, local_rank: int, local_world: int) -> None:
        self.rank, self.world = rank, world
        self.local_rank, self.local_world = local_rank, local_world
        self.broken = False
        """Whether an exchange was cut short, after which none can follow."""
        self.busy = False
        """Whether ranks are at work that rank 0 has asked for; only then do they not listen."""
        self._patient = dist.new_group(backend="gloo", timeout=timedelta(days=_PATIENT_DAYS))
        self._timed = self._tensors = self._patient
        self._device = torch.device("cpu")
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="ranks", daemon=True)
        self._thread.start()

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == LEAD

    def prepare(self, device: torch.device, timeout_seconds: float) -> None:
        """Wait for each other no longer than this from now on, and exchange tensors of a GPU between GPUs."""
        timeout = timedelta(seconds=timeout_seconds)
        self._device = device
        self._timed = self._call("setting up", lambda: dist.new_group(backend="gloo", timeout=timeout))
        # Those who listen have all the time, but rank 0 does not wait for one that does not listen.
        told = timeout if self.leads else timedelta(days=_PATIENT_DAYS)
        self._patient = self._call("setting up", lambda: dist.new_group(backend="gloo", timeout=told))
        self._tensors = self._timed
        if device.type == "cuda":
            # Before anything is on it, because the exchange of the first tensor binds this process to its GPU.
            torch.cuda.set_device(device)
            self._call("choosing a GPU", lambda: torch.cuda.set_device(device))
            self._tensors = self._call("setting up NCCL", lambda: dist.new_group(backend="nccl", timeout=timeout))

    def tell(self, message: Json, tree: Tree | None = None) -> None:
        """Send the other ranks a message and a tree; only rank 0 may, and all others must `listen`."""
        sent = tree or {}
        self._broadcast_json({"message": message, "leaves": leaves_of(sent)}, "sending work")
        if sent:
            self._call("sending tensors", lambda: self._broadcast(as_bytes(sent, self._device)))

    def listen(self) -> tuple[Json, Tree]:
        """What rank 0 tells: the next message and its tree, whenever it comes."""
        heard = self._broadcast_json(None, "waiting for rank 0")
        leaves: Leaves = heard["leaves"]
        if not leaves:
            return heard["message"], {}
        data = torch.empty(num_bytes(leaves), dtype=torch.uint8, device=self._device)
        self._call("receiving tensors", lambda: self._broadcast(data))
        return heard["message"], from_bytes(data, leaves)

    def gather(self, own: Json) -> list[Json]:
        """What every rank says, in the order of ranks, for every rank."""
        if not self.leads:
            self._send_json(own, LEAD)
            heard: Json = self._broadcast_json(None, "hearing what all ranks say", self._timed)
            return list(heard["all"])
        said = [own, *(self._receive_json(source) for source in range(1, self.world))]
        self._broadcast_json({"all": said}, "saying what all ranks said", self._timed)
        return said

    def reduce(self, vector: Tensor, kind: str) -> Tensor:
        """The sum or maximum of a vector over all ranks, for every rank; the vector is overwritten."""
        operation = dist.ReduceOp.MAX if kind == "max" else dist.ReduceOp.SUM
        self._call("adding up", lambda: self._settled(dist.all_reduce(vector, operation, group=self._tensors)))
        return vector

    def send(self, tree: Tree, target: int = LEAD) -> None:
        """Send a tree to one rank, which must know its leaves."""
        data = as_bytes(tree, torch.device("cpu"))
        if data.numel():
            self._call(f"sending to rank {target}", lambda: dist.send(data, target, group=self._timed))

    def receive(self, leaves: Leaves, source: int) -> Tree:
        """A tree with these leaves from one rank, on the CPU."""
        data = torch.empty(num_bytes(leaves), dtype=torch.uint8)
        if data.numel():
            self._call(f"receiving from rank {source}", lambda: dist.recv(data, source, group=self._timed), source)
        return from_bytes(data, leaves)

    def abort(self) -> None:
        """Break off whatever is under way, so that neither this process nor another waits for it."""
        self.broken = True
        for group in {self._patient, self._timed, self._tensors}:
            backend = group._get_backend(torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu"))
            backend.abort()

    def close(self) -> None:
        """Let go of the others before the process ends: a thread that is still at it then would abort the process."""
        if self.broken:
            self.abort()
        self._calls.put(None)
        self._thread.join(_CLOSE_SECONDS)
        if not self.broken and dist.is_initialized():
            dist.destroy_process_group()

    def _broadcast(self, data: Tensor) -> None:
        self._settled(dist.broadcast(data, LEAD, group=self._tensors))

    def _settled(self, _work: object) -> None:
        """A GPU's exchange is only under way when the call returns; whoever waits for it waits here."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def _broadcast_json(self, value: Any, what: str, group: dist.ProcessGroup | None = None) -> Any:
        chosen = self._patient if group is None else group
        content = encoded(value) if self.leads else torch.empty(0, dtype=torch.uint8)
        size = torch.tensor([len(content)])
        source = None if self.leads else LEAD
        self._call(what, lambda: dist.broadcast(size, LEAD, group=chosen), source)
        data = content if self.leads else torch.empty(int(size), dtype=torch.uint8)
        self._call(what, lambda: dist.broadcast(data, LEAD, group=chosen), source)
        return value if self.leads else decoded(data)

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
        found: Json = decoded(content)
        return found

    def _call(self, what: str, call: Callable[[], T], other: int | None = None) -> T:
        """Do an exchange in the other thread and wait for it; `other` is the rank it fails with, if that is known."""
        found: list[T] = []
        errors: list[Exception] = []
        done = threading.Event()

        def work() -> None:
            try:
                found.append(call())
            except Exception as error:
                errors.append(error)
            done.set()

        self._calls.put(work)
        try:
            done.wait()
        except BaseException:
            # A signal: what is under way cannot be taken back.
            self.broken = True
            raise
        if errors:
            self.broken = True
            raise self._lost(what, other, errors[0]) from errors[0]
        return found[0]

    def _lost(self, what: str, other: int | None, error: Exception) -> Lost:
        # After the place in gloo's source, and before its advice.
        text = str(error).partition("\n")[0].partition(".cc:")[2].partition("] ")[2] or str(error).partition("\n")[0]
        reason = text.partition(". ")[0].strip().rstrip(".") or type(error).__name__
        lost = 1 - self.rank if other is None and self.world == 2 else other
        who = "another rank" if lost is None else f"rank {lost}"
        return Lost(
            f"rank {self.rank} of {self.world} lost {who} while {what}: {reason}. What was reached is kept: "
            f"run the same command with --resume."
        )

    def _work(self) -> None:
        """The other thread: one exchange after another."""
        while (work := self._calls.get()) is not None:
            work()


def launched() -> bool:
    """Whether torchrun, or what sets the same variables, started this process as one of several."""
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return all(os.environ.get(name) for name in needed) and int(os.environ["WORLD_SIZE"]) > 1


_joined: list[Ranks] = []


def join() -> Ranks:
    """Meet the other processes; once per process, however many runs follow."""
    if _joined and not _joined[0].broken:
        return _joined[0]
    if _joined:
        raise RunFailed("the ranks lost each other in an earlier run. Start all processes again.")
    if not dist.is_available() or not dist.is_gloo_available():
        raise Misconfigured("this build of torch has no gloo, which ranks need to talk. Install another build.")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not dist.is_initialized():
        try:
            dist.init_process_group("gloo", timeout=timedelta(seconds=_START_SECONDS))
        except (RuntimeError, ValueError) as error:
            where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            raise RunFailed(f"rank {rank} of {world} did not meet the others at {where}: {error}") from error
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    local_world = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    _joined.append(Ranks(rank, world, local_rank, local_world))
    atexit.register(_joined[0].close)
    return _joined[0]
