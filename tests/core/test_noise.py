"""What the plan draws for methods: uniform numbers per sample, paired batches, epochs that go on."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from fedblade.core.lengths import PhasePlan
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as train
from fedblade.core.phase import Lookahead, Phase
from fedblade.core.plan import Planner
from fedblade.core.streams import Streams
from fedblade.core.terms import Term, TermValue
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from support.small_federation import CNN, assert_different, assert_same_bits, build, images, tasks


class Shards:
    """Client k holds `sizes[k]` consecutive samples, all of class k."""

    def __init__(self, *sizes):
        self.ends = np.cumsum((0, *sizes))

    def indices(self, client, round_index):
        return np.arange(self.ends[client], self.ends[client + 1])

    def counts(self, client, round_index):
        return np.eye(len(self.ends) - 1, dtype=np.int64)[client] * (self.ends[client + 1] - self.ends[client])

    def removed(self, client, round_index):
        return None


def planner(*sizes, **changes):
    default = Planner(
        streams=Streams(1),
        shards=Shards(*sizes),
        phases=(PhasePlan(2),),
        batch_size=4,
        last_batch="keep",
        weighting="samples",
        mean_samples=float(np.mean(sizes)),
        skip_singletons=False,
        num_draws=0,
        augmented_pass=False,
        device=torch.device("cpu"),
    )
    return replace(default, **changes)


def batches(task):
    return [batch for phase in task.phases for batch in phase]


def indices(found):
    return [batch.indices.tolist() for batch in found]


def test_a_step_has_as_many_uniform_numbers_per_sample_as_the_method_asks_for():
    found = batches(planner(4000, noise=3, batch_size=1000).task(0, 0))
    assert {batch.noise.shape for batch in found} == {(1000, 3)}
    drawn = torch.cat([batch.noise for batch in found])
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert abs(drawn.mean().item() - 0.5) < 0.01
    assert len(drawn.unique()) == drawn.numel()


def test_without_noise_there_is_none():
    assert all(batch.noise is None for batch in batches(planner(10).task(0, 0)))


@pytest.mark.parametrize("last", ["keep", "drop", "wrap"])
def test_noise_changes_neither_batches_nor_augmentation(last):
    settings = {"num_draws": 2, "augmented_pass": True, "last_batch": last}
    plain, noisy = (planner(10, 7, noise=n, **settings).task(1, 1) for n in (0, 5))
    for a, b in zip(batches(plain), batches(noisy), strict=True):
        assert a.indices.tolist() == b.indices.tolist()
        assert torch.equal(a.draws, b.draws)
    assert plain.indices.tolist() == noisy.indices.tolist()
    assert torch.equal(plain.pass_draws, noisy.pass_draws)
    assert plain.seed == noisy.seed


def test_noise_is_the_clients_rounds_and_epochs_own():
    plan = planner(8, 8, noise=1, batch_size=8)
    drawn = [b.noise for round_ in (0, 1) for client in (0, 1) for b in batches(plan.task(round_, client))]
    assert len(drawn) == 8
    assert len(torch.cat(drawn).unique()) == 64
    assert torch.equal(drawn[0], batches(planner(8, 8, noise=1, batch_size=8).task(0, 0))[0].noise)


def test_noise_is_not_the_augmentations():
    (batch, *_) = batches(planner(8, noise=2, num_draws=2, batch_size=8).task(0, 0))
    assert not torch.equal(batch.noise, batch.draws)


def test_a_wrapped_sample_repeats_its_noise():
    *_, last = batches(planner(10, noise=2, num_draws=1, last_batch="wrap", phases=(PhasePlan(1),)).task(0, 0))
    first = batches(planner(10, noise=2, num_draws=1, phases=(PhasePlan(1),)).task(0, 0))
    assert last.indices.tolist() == first[2].indices.tolist() + first[0].indices.tolist()[:2]
    assert torch.equal(last.noise, torch.cat([first[2].noise, first[0].noise[:2]]))
    assert torch.equal(last.draws, torch.cat([first[2].draws, first[0].draws[:2]]))


def test_a_client_smaller_than_half_a_batch_wraps_more_than_once():
    (batch,) = batches(planner(3, noise=1, batch_size=8, last_batch="wrap", phases=(PhasePlan(1),)).task(0, 0))
    assert batch.indices.tolist() == (batch.indices.tolist()[:3] * 3)[:8]
    assert torch.equal(batch.noise, batch.noise[:3].repeat(3, 1)[:8])


def paired(*sizes, epochs=1, steps=None, **changes):
    return planner(*sizes, phases=(PhasePlan(epochs, steps, paired=True),), **changes)


@pytest.mark.parametrize(("size", "steps"), [(16, 2), (20, 2), (24, 3), (8, 1), (12, 1)])
def test_steps_take_two_batches_in_order_and_leave_an_odd_last_one_out(size, steps):
    plain = batches(planner(size, phases=(PhasePlan(1),), noise=1, num_draws=1).task(0, 0))
    found = batches(paired(size, noise=1, num_draws=1).task(0, 0))
    assert len(found) == steps
    taken = [part for step in found for part in (step, step.then)]
    assert indices(taken) == indices(plain)[: 2 * steps]
    for a, b in zip(taken, plain, strict=False):
        assert torch.equal(a.noise, b.noise)
        assert torch.equal(a.draws, b.draws)


def test_a_lone_batch_serves_twice():
    (step,) = batches(paired(3).task(0, 0))
    assert step.then.indices.tolist() == step.indices.tolist()
    assert sorted(step.indices.tolist()) == [0, 1, 2]


def test_pairs_do_not_reach_over_epochs():
    found = batches(paired(12, epochs=2).task(0, 0))
    first, second = (batches(planner(12, phases=(PhasePlan(1),)).task(0, 0, first_epoch=epoch)) for epoch in (0, 1))
    assert indices(found) == [first[0].indices.tolist(), second[0].indices.tolist()]
    assert [step.then.indices.tolist() for step in found] == [first[1].indices.tolist(), second[1].indices.tolist()]


def test_steps_count_pairs():
    assert len(batches(paired(16, epochs=3, steps=5).task(0, 0))) == 5
    assert (
        indices(batches(paired(16, epochs=3, steps=3).task(0, 0)))
        == indices(batches(paired(16, epochs=3).task(0, 0)))[:3]
    )


def test_a_singleton_is_left_out_before_batches_are_paired():
    """Nine samples make batches of 4, 4 and 1; five make 4 and 1, and the lone batch serves twice."""
    task = paired(9, 5, skip_singletons=True).task(0, 0)
    assert [(len(step.indices), len(step.then.indices)) for step in batches(task)] == [(4, 4)]
    assert task.skipped_singletons == 1
    task = paired(9, 5, skip_singletons=True).task(0, 1)
    assert [(len(step.indices), len(step.then.indices)) for step in batches(task)] == [(4, 4)]
    assert task.skipped_singletons == 1
    kept = paired(9, 5).task(0, 1)
    assert [(len(step.indices), len(step.then.indices)) for step in batches(kept)] == [(4, 1)]


def test_a_client_with_a_singleton_alone_makes_no_step():
    task = paired(1, skip_singletons=True).task(0, 0)
    assert (task.num_steps, task.weight, task.skipped_singletons) == (0, 0.0, 1)


def test_singletons_are_counted_in_the_epochs_that_were_begun():
    task = planner(5, phases=(PhasePlan(4, steps=2),), skip_singletons=True).task(0, 0)
    assert (task.num_steps, task.skipped_singletons) == (2, 2)


def test_epochs_may_go_on_where_others_ended():
    plan = planner(10, noise=1, num_draws=1)
    whole = batches(plan.task(0, 0, (PhasePlan(4),)))
    late = batches(plan.task(0, 0, (PhasePlan(2),), first_epoch=2))
    assert indices(late) == indices(whole)[6:]
    for a, b in zip(late, whole[6:], strict=True):
        assert torch.equal(a.noise, b.noise)
        assert torch.equal(a.draws, b.draws)


def test_layers_that_draw_are_seeded_anew_where_epochs_go_on():
    plan = planner(10)
    assert len({plan.task(0, 0, first_epoch=epoch).seed for epoch in (0, 1, 2)}) == 3
    assert plan.task(0, 0, (PhasePlan(7),)).seed == plan.task(0, 0).seed


@dataclass(frozen=True, kw_only=True)
class Shaken(Term):
    """Mean of the features times the noise; keeps what it was given."""

    name: ClassVar[str] = "shaken"
    given: list

    def __call__(self, view):
        self.given.append(view.noise)
        return TermValue((view.features * view.noise[:, :1].to(view.features)).mean())


def local(setup, task):
    return train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))[0]


def test_terms_are_given_the_plans_noise():
    given = []
    method = replace(fedavg(), losses=(CrossEntropy(), Shaken(given=given)), noise=2)
    setup = build(method, images(), **{"dataset.augment": "crop_flip"}, **CNN)
    task = tasks(setup)[2]
    first = local(setup, task)
    for batch, noise in zip(batches(task), given, strict=True):
        assert torch.equal(noise, batch.noise)
        assert noise.shape == (len(batch.indices), 2)
    assert_same_bits(first.params, local(setup, task).params)


def test_a_method_that_draws_noise_it_does_not_use_is_unchanged():
    quiet, noisy = build(data=images(), **CNN), build(replace(fedavg(), noise=4), images(), **CNN)
    assert_same_bits(local(quiet, tasks(quiet)[0]).params, local(noisy, tasks(noisy)[0]).params)


def test_both_passes_of_a_lookahead_are_given_the_noise_of_their_batch():
    given = []
    phase = Phase(lookahead=Lookahead(lambda view: view.params, fresh_batch=True))
    setup = build(replace(fedavg(), losses=(CrossEntropy(), Shaken(given=given)), noise=1, phases=(phase,)))
    task = tasks(setup)[2]
    row = local(setup, task)
    expected = [noise for step in batches(task) for noise in (step.noise, step.then.noise)]
    assert all(torch.equal(a, b) for a, b in zip(given, expected, strict=True))
    assert_different(row.params, setup.start.params)
