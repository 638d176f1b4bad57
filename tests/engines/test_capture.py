"""What may go wrong with captured work: the round is read, a GPU refuses, its memory is too small."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from conformance import LR, check_two_rounds
from small_federation import BATCH_NORM, build, tasks

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import engines
from fedblade.core.state import MemoryStore
from fedblade.core.terms import GradientTerm, Term, TermValue
from fedblade.engines._capture import UNREAD, Captures
from fedblade.engines._slots import SlotTrainer, can_replay
from fedblade.engines.stacked import StackedEngine
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg


@dataclass(frozen=True, kw_only=True)
class Fading(Term):
    name: ClassVar[str] = "fading"

    def __call__(self, view):
        return TermValue(view.features.square().mean() * 0.9**view.round)


@dataclass(frozen=True, kw_only=True)
class Shrinking(GradientTerm):
    name: ClassVar[str] = "shrinking"

    def gradient(self, view):
        return {name: leaf / (1 + view.round) for name, leaf in view.params.items()}


@dataclass(frozen=True, kw_only=True)
class Honest(Shrinking):
    by_round: ClassVar[bool] = True


def with_term(term):
    return replace(fedavg(), losses=(CrossEntropy(), term))


@pytest.mark.parametrize("term", [Fading(), Shrinking()])
def test_a_term_that_reads_the_round_in_secret_is_told(term):
    setup = build(with_term(term))
    engine = engines.get("stacked").make(setup.problem)
    engine._slots = SlotTrainer(engine._many)
    with pytest.raises(Misconfigured, match="by_round"):
        engine.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)


def test_a_term_that_says_so_is_not_captured():
    engine = engines.get("stacked").make(build(with_term(Honest())).problem)
    assert not can_replay(engine._many)


@pytest.mark.parametrize(
    "use", [int, float, bool, hash, lambda r: r + 1, lambda r: 2**r, lambda r: r < 3, lambda r: r == 0, lambda r: r % 2]
)
def test_nothing_can_be_done_with_a_round_that_must_not_be_read(use):
    with pytest.raises(Misconfigured, match=r"view\.round"):
        use(UNREAD)


@pytest.fixture
def refusing(monkeypatch):
    """A GPU that captures nothing, and what was done with it."""
    done = []

    @contextmanager
    def graph(_graph, pool):
        done.append(("capture", pool))
        raise RuntimeError("operation not permitted when stream is capturing\nmore text")
        yield

    for name, double in {
        "graph": graph,
        "CUDAGraph": object,
        "graph_pool_handle": lambda: (0, 1),
        "current_stream": lambda: "the stream before",
        "current_device": lambda: 0,
        "set_stream": lambda stream: done.append(("stream", stream)),
        "synchronize": lambda: done.append(("wait",)),
    }.items():
        monkeypatch.setattr(torch.cuda, name, double)
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        monkeypatch.setattr(torch._C, name, lambda *args, name=name: done.append((name, *args)), raising=False)
    return done


def test_what_cannot_be_captured_is_done_step_by_step(refusing):
    captures = Captures()
    with pytest.warns(UserWarning, match=r"runs slower: operation not permitted when stream is capturing$"):
        work, outputs = captures.of(lambda: 3)
    assert (work(), outputs) == (3, None)


@pytest.mark.filterwarnings("ignore:a GPU cannot capture")
def test_after_a_refusal_stream_and_pool_are_as_before_and_no_other_capture_is_tried(refusing):
    captures = Captures()
    captures.of(lambda: 3)
    ended = [("_cuda_endAllocateToPool", 0, (0, 1)), ("_cuda_releasePool", 0, (0, 1))]
    assert refusing == [("capture", (0, 1)), ("stream", "the stream before"), *ended, ("wait",)]
    work, outputs = captures.of(lambda: 4)
    assert (work(), outputs) == (4, None)
    assert len(refusing) == 5, "it is not asked again"


@pytest.fixture
def short_of_memory(monkeypatch):
    """A device on which no more than one client fits."""
    plain, sizes = StackedEngine._train_group, []

    def train(self, problem, group, received, phases):
        sizes.append(len(group))
        if len(group) > 1:
            raise torch.cuda.OutOfMemoryError("pretended")
        return plain(self, problem, group, received, phases)

    monkeypatch.setattr(StackedEngine, "_train_group", train)
    return sizes


@pytest.mark.filterwarnings("ignore:the GPU's memory")
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedrep"])
def test_groups_are_halved_until_they_fit(short_of_memory, method):
    setup = build(method, **BATCH_NORM)
    check_two_rounds(engines.get("stacked").make(setup.problem), setup)
    assert short_of_memory[:3] == [4, 2, 1]
    assert 4 not in short_of_memory[1:], "later groups are as small as memory was found to be"


@pytest.mark.filterwarnings("ignore:the GPU's memory")
def test_a_client_that_does_not_fit_alone_is_an_error(monkeypatch):
    def never(*_args):
        raise torch.cuda.OutOfMemoryError("pretended")

    monkeypatch.setattr(StackedEngine, "_train_group", never)
    setup = build()
    engine = engines.get("stacked").make(setup.problem)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        engine.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)
