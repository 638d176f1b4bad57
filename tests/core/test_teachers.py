"""Frozen models that are fed the student's batch: what they say, how often they are asked, what they leave alone."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch.nn import functional as F

from fedblade.core.method import model
from fedblade.core.network import Network
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as train
from fedblade.core.outcome import train_client
from fedblade.core.terms import Term, TermValue
from fedblade.core.tree import tree_clone
from fedblade.core.views import Teacher
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedetf import fedetf
from fedblade.personal import local_model
from support.small_federation import BATCH_NORM, assert_close, assert_different, assert_same_bits, build, tasks

LR = 0.05
EVAL, BATCH, OWN = Teacher(), Teacher(norm="batch"), Teacher(of="own")


@dataclass(frozen=True, kw_only=True)
class Near(Term):
    """Mean squared distance to what a teacher says; keeps what it was told."""

    name: ClassVar[str] = "near"
    teacher: Teacher
    told: list

    @property
    def teachers(self):
        return (self.teacher,)

    def __call__(self, view):
        taught = view.teachers[self.teacher]
        self.told.append(taught)
        return TermValue((view.raw_logits - taught.raw_logits).square().mean())


def taught_by(*teachers, base=None, weight=1.0, **changes):
    """A method with one term for each teacher, and what its terms were told."""
    told, base = [], base or fedavg()
    near = tuple(Near(teacher=teacher, weight=weight, told=told) for teacher in teachers)
    return replace(base, losses=(*base.losses, *near), **changes), told


def local(setup, task, own=None):
    return train(setup.problem, receive(setup.problem, setup.start, task, own, LR))


def says(setup, params, buffers, batch, training):
    """A model's features of a batch, its buffers left as they are."""
    x, _ = setup.problem.samples.batch(batch.indices)
    return setup.problem.network.features(params, tree_clone(buffers), x, training=training)


def odd_buffers(setup):
    """A start whose running statistics are far from those of any batch."""
    moved = {n: leaf * 2 + 0.3 for n, leaf in setup.start.buffers.items() if leaf.is_floating_point()}
    return setup.start.replace(buffers=setup.start.buffers | moved)


@pytest.mark.parametrize(("teacher", "training"), [(EVAL, False), (BATCH, True)], ids=["eval", "batch"])
@pytest.mark.parametrize("base", [fedavg(), fedetf()], ids=["linear", "etf"])
def test_the_received_model_teaches_through_all_steps(teacher, training, base):
    method, told = taught_by(teacher, base=base)
    setup = build(method, **BATCH_NORM)
    start, task = odd_buffers(setup), tasks(setup)[2]
    train(setup.problem, receive(setup.problem, start, task, None, LR))
    assert len(told) == task.num_steps
    for batch, taught in zip(task.phases[0], told, strict=True):
        z = says(setup, start.params, start.buffers, batch, training)
        output = setup.problem.network.output(start.params, start.fixed, z)
        assert torch.equal(taught.features, z)
        assert torch.equal(taught.output.logits, output.logits)
        raw = setup.problem.network.head.raw_logits(start.params, start.fixed, output)
        assert torch.equal(taught.raw_logits, raw)
    other = says(setup, start.params, start.buffers, task.phases[0][0], not training)
    assert not torch.allclose(told[0].features, other)


@pytest.mark.parametrize("teacher", [EVAL, BATCH], ids=["eval", "batch"])
def test_a_teacher_changes_no_buffer_and_nothing_that_was_received(teacher):
    """A term that looks at its teacher and adds nothing equals its absence, statistics included."""

    @dataclass(frozen=True, kw_only=True)
    class Looks(Near):
        def __call__(self, view):
            return TermValue(0.0 * super().__call__(view).value)

    told = []
    looking = build(replace(fedavg(), losses=(CrossEntropy(), Looks(teacher=teacher, told=told))), **BATCH_NORM)
    task = tasks(looking)[1]
    received = receive(looking.problem, looking.start, task, None, LR)
    before = tree_clone(received.anchor | received.buffers)
    row, _ = train(looking.problem, received)
    alone, _ = local(build(**BATCH_NORM), task)
    assert told
    assert_same_bits(received.anchor | received.buffers, before)
    assert_same_bits(row.params | row.buffers, alone.params | alone.buffers)


def test_a_teacher_in_the_clients_state_is_not_changed_either():
    method, told = taught_by(Teacher(of="own", norm="batch"), client_state={"own": model})
    setup = build(method, **BATCH_NORM)
    received = receive(setup.problem, setup.start, tasks(setup)[0], None, LR)
    before = tree_clone(received.client["own"])
    train(setup.problem, received)
    assert told
    assert_same_bits(received.client["own"], before)


@pytest.fixture
def forwards(monkeypatch):
    """Counts the passes through a body."""
    calls, plain = [], Network._forward

    def counted(self, *args, **options):
        calls.append(options["training"])
        return plain(self, *args, **options)

    monkeypatch.setattr(Network, "_forward", counted)
    return calls


@pytest.mark.parametrize(
    ("teachers", "passes"),
    [((), 1), ((EVAL,), 2), ((EVAL, Teacher(), Teacher()), 2), ((EVAL, BATCH, EVAL), 3), ((EVAL, BATCH, OWN), 4)],
)
def test_one_forward_pass_for_each_distinct_teacher(teachers, passes, forwards):
    method, told = taught_by(*teachers, client_state={"own": model})
    setup = build(method, **BATCH_NORM)
    task = tasks(setup)[0]
    forwards.clear()
    local(setup, task)
    assert len(forwards) == passes * task.num_steps
    assert len(told) == len(teachers) * task.num_steps


def test_a_term_of_weight_zero_asks_for_no_teacher(forwards):
    method, told = taught_by(EVAL, weight=0.0)
    setup = build(method, **BATCH_NORM)
    task = tasks(setup)[0]
    forwards.clear()
    row, _ = local(setup, task)
    assert len(forwards) == task.num_steps
    assert not told
    assert_same_bits(row.params, local(build(**BATCH_NORM), task)[0].params)


def test_a_client_is_taught_by_the_model_it_kept():
    method, told = taught_by(OWN, client_state={"own": model}, client_update={"own": local_model})
    setup = build(method, **BATCH_NORM)
    first, second = (setup.planner.task(round_, 2) for round_ in (0, 1))
    kept = train_client(setup.problem, setup.start, first, None, LR).state
    assert torch.equal(
        told[0].features, says(setup, setup.start.params, setup.start.buffers, first.phases[0][0], False)
    )
    told.clear()
    train_client(setup.problem, setup.start, second, kept, LR)
    params, buffers = ({name: kept["own"][name] for name in tree} for tree in (setup.start.params, setup.start.buffers))
    for batch, taught in zip(second.phases[0], told, strict=True):
        assert torch.equal(taught.features, says(setup, params, buffers, batch, False))
    assert_different(params, setup.start.params)


def test_no_gradient_flows_into_a_teacher():
    """One step against a gradient taken by hand, the teacher's logits being numbers."""
    method, told = taught_by(OWN, weight=0.7, client_state={"own": model})
    setup = build(method, momentum=0.0, weight_decay=0.0)
    task = tasks(setup)[2]
    first = replace(task, phases=((task.phases[0][0],),))
    own = {name: leaf + 0.1 for name, leaf in setup.start.params.items()}
    row, _ = local(setup, first, {"own": own})
    assert not any(leaf.requires_grad for leaf in (told[0].features, told[0].output.logits, told[0].raw_logits))

    batch = first.phases[0][0]
    _, y = setup.problem.samples.batch(batch.indices)
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in setup.start.params.items()}

    def logits(tree):
        return F.linear(says(setup, tree, {}, batch, True), tree["head.weight"], tree["head.bias"])

    aim = torch.tensor(logits(own).tolist(), dtype=torch.float64)
    loss = F.cross_entropy(logits(leaves), y) + 0.7 * (logits(leaves) - aim).square().mean()
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    expected = {n: (w - LR * g).detach() for (n, w), g in zip(leaves.items(), gradients, strict=True)}
    assert_close(row.params, expected, 1e-14)
