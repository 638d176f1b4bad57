"""What may go wrong with captured work: the round is read, a GPU refuses, its memory is too small."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.core.registry import engines
from fedblade.core.state import MemoryStore
from fedblade.core.terms import GradientTerm, Term, TermValue
from fedblade.engines import _capture
from fedblade.engines._capture import HIDDEN_ROUND, Captures
from fedblade.engines._many_clients import ManyClients
from fedblade.engines._slots import SlotTrainer, can_replay
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from support.conformance import LR, check_two_rounds
from support.slots import use_slots
from support.small_federation import BATCH_NORM, build, tasks

pytestmark = pytest.mark.gpu


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
    use_slots(engine, SlotTrainer())
    with pytest.raises(Misconfigured, match="by_round"):
        engine.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)


def test_a_term_that_says_so_is_not_captured():
    engine = engines.get("stacked").make(build(with_term(Honest())).problem)
    assert not can_replay(engine._problem)


@pytest.mark.parametrize(
    "use", [int, float, bool, hash, lambda r: r + 1, lambda r: 2**r, lambda r: r < 3, lambda r: r == 0, lambda r: r % 2]
)
def test_nothing_can_be_done_with_a_round_that_must_not_be_read(use):
    with pytest.raises(Misconfigured, match=r"view\.round"):
        use(HIDDEN_ROUND)


@pytest.fixture
def gpu(monkeypatch):
    """A pretended GPU: its debug mode, and an error that its captures raise."""
    state = SimpleNamespace(mode=0, error=None, captures=0)

    @contextmanager
    def graph(_graph, pool):
        assert state.mode == 0, "torch's mode is as before"
        state.captures += 1
        yield
        if state.error is not None:
            raise state.error

    for name, double in {
        "graph": graph,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: "replayed"),
        "graph_pool_handle": lambda: (0, 1),
        "get_sync_debug_mode": lambda: state.mode,
        "set_sync_debug_mode": lambda mode: setattr(state, "mode", mode),
    }.items():
        monkeypatch.setattr(torch.cuda, name, double)
    monkeypatch.setattr(_capture, "on_side_stream", lambda work: work())
    return state


def test_captured_work_is_replayed(gpu):
    work, outputs = Captures().capture(lambda: 3)
    assert (work(), outputs, gpu.captures) == ("replayed", 3, 1)


def test_work_that_waits_for_the_gpu_is_never_captured_and_done_step_by_step(gpu):
    def work():
        if gpu.mode == 2:
            raise RuntimeError("called a synchronizing CUDA operation")
        return 3

    with pytest.warns(UserWarning, match="the host waits for the GPU"):
        again, outputs = Captures().capture(work)
    assert (again(), outputs, gpu.captures, gpu.mode) == (3, None, 0, 0)


def test_other_errors_of_the_trial_are_not_taken_for_waiting(gpu):
    def work():
        raise RuntimeError("sizes do not match")

    with pytest.raises(RuntimeError, match="sizes do not match"):
        Captures().capture(work)
    assert gpu.mode == 0


def test_a_capture_that_fails_ends_the_run_with_a_way_out(gpu):
    gpu.error = RuntimeError("operation not permitted when stream is capturing\nmore text")
    with pytest.raises(RunFailed, match=r"\(operation not permitted when stream is capturing\).* engine=sequential"):
        Captures().capture(lambda: 3)


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("pretended"), Misconfigured("pretended")])
def test_errors_that_others_deal_with_pass(gpu, error):
    gpu.error = error
    with pytest.raises(type(error), match="pretended"):
        Captures().capture(lambda: 3)


@pytest.fixture
def short_of_memory(monkeypatch):
    """A device on which no more than one client fits."""
    plain, sizes = ManyClients.train, []

    def train(self, received, group, phases=None):
        sizes.append(len(group))
        if len(group) > 1:
            raise torch.cuda.OutOfMemoryError("pretended")
        return plain(self, received, group, phases)

    monkeypatch.setattr(ManyClients, "train", train)
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

    monkeypatch.setattr(ManyClients, "train", never)
    setup = build()
    engine = engines.get("stacked").make(setup.problem)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        engine.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)
