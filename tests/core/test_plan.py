from dataclasses import replace

import numpy as np
import pytest
import torch

from fedblade.core.lengths import PhasePlan
from fedblade.core.plan import Planner
from fedblade.core.streams import Streams


class Shards:
    """Client k holds `sizes[k]` consecutive samples, all of class k."""

    def __init__(self, *sizes):
        self.ends = np.cumsum((0, *sizes))

    def indices(self, client, round_index):
        return np.arange(self.ends[client], self.ends[client + 1])

    def counts(self, client, round_index):
        counts = np.zeros(len(self.ends) - 1, dtype=np.int64)
        counts[client] = self.ends[client + 1] - self.ends[client]
        return counts

    def removed(self, client, round_index):
        return None


def planner(*sizes, **changes):
    default = Planner(
        streams=Streams(1),
        shards=Shards(*(sizes or (10, 7, 3))),
        phases=(PhasePlan(2),),
        batch_size=4,
        last_batch="keep",
        weighting="samples",
        mean_samples=float(np.mean(sizes or (10, 7, 3))),
        skip_singletons=False,
        num_draws=0,
        augmented_pass=False,
        device=torch.device("cpu"),
    )
    return replace(default, **changes)


def epochs(task, per_epoch):
    batches = [batch.indices.tolist() for phase in task.phases for batch in phase]
    return [batches[i : i + per_epoch] for i in range(0, len(batches), per_epoch)]


def flat(batches):
    return [i for batch in batches for i in batch]


@pytest.mark.parametrize("client", [0, 1, 2])
def test_every_epoch_covers_each_sample_once(client):
    plan = planner()
    held = plan.shards.indices(client, 0).tolist()
    task = plan.task(0, client)
    parts = epochs(task, -(-len(held) // 4))
    assert len(parts) == 2
    assert all(sorted(flat(part)) == held for part in parts)
    assert all(len(batch) == 4 for part in parts for batch in part[:-1])


def test_epochs_are_shuffled_anew():
    first, second = epochs(planner().task(0, 0), 3)
    assert flat(first) != flat(second)
    assert flat(first) != sorted(flat(first))


def test_keep_leaves_a_short_last_batch():
    assert [len(b) for b in epochs(planner().task(0, 0), 3)[0]] == [4, 4, 2]


def test_drop_leaves_out_the_short_batch_and_changes_no_other():
    kept, dropped = planner().task(0, 0), planner(last_batch="drop").task(0, 0)
    assert [b[:2] for b in epochs(kept, 3)] == epochs(dropped, 2)


def test_wrap_fills_the_last_batch_from_the_start_of_the_epoch():
    kept, wrapped = planner().task(0, 0), planner(last_batch="wrap").task(0, 0)
    for mine, other in zip(epochs(wrapped, 3), epochs(kept, 3), strict=True):
        assert mine[:2] == other[:2]
        assert mine[2] == other[2] + mine[0][:2]


def test_wrap_repeats_a_client_smaller_than_a_batch():
    (batch,) = epochs(planner(3, batch_size=8, last_batch="wrap", phases=(PhasePlan(1),)).task(0, 0), 1)[0]
    assert batch == (batch[:3] * 3)[:8]
    assert sorted(batch[:3]) == [0, 1, 2]


@pytest.mark.parametrize("mode", ["keep", "drop", "wrap"])
def test_an_exact_multiple_is_the_same_in_every_mode(mode):
    task = planner(8, last_batch=mode).task(0, 0)
    assert [len(b) for phase in epochs(task, 2) for b in phase] == [4] * 4


def test_wrapped_samples_carry_the_draws_they_had():
    task = planner(3, batch_size=5, last_batch="wrap", num_draws=2, phases=(PhasePlan(1),)).task(0, 0)
    (batch,) = task.phases[0]
    assert batch.draws.shape == (5, 2)
    assert torch.equal(batch.draws[3:], batch.draws[:2])


def test_singletons_are_skipped_only_when_the_network_cannot_take_them():
    with_single = planner(5).task(0, 0)
    without = planner(5, skip_singletons=True).task(0, 0)
    assert [len(b.indices) for b in with_single.phases[0]] == [4, 1, 4, 1]
    assert [len(b.indices) for b in without.phases[0]] == [4, 4]
    assert (with_single.skipped_singletons, without.skipped_singletons) == (0, 2)
    assert (with_single.num_steps, without.num_steps) == (4, 2)


def same_task(a, b):
    assert (a.client, a.round, a.weight, a.num_steps) == (b.client, b.round, b.weight, b.num_steps)
    for mine, other in zip(flat(a.phases), flat(b.phases), strict=True):
        assert torch.equal(mine.indices, other.indices)
        assert (mine.draws is None) == (other.draws is None)
        assert mine.draws is None or torch.equal(mine.draws, other.draws)
    if a.pass_draws is not None:
        assert torch.equal(a.pass_draws, b.pass_draws)


def test_a_task_depends_on_round_and_client_only():
    plan = planner(num_draws=3, augmented_pass=True)
    alone = plan.task(4, 1)
    for other in (0, 2, 1):
        plan.task(3, other)
    same_task(plan.task(4, 1), alone)
    same_task(planner(num_draws=3, augmented_pass=True).task(4, 1), alone)


def test_another_clients_size_changes_nothing_but_weights():
    mine, other = planner(10, 7, 3).task(0, 0), planner(10, 1, 1).task(0, 0)
    assert epochs(mine, 3) == epochs(other, 3)


@pytest.mark.parametrize("other", [{"round_": 1, "client": 0}, {"round_": 0, "client": 1}])
def test_rounds_and_clients_are_shuffled_differently(other):
    plan = planner(8, 8, phases=(PhasePlan(1),))
    here = torch.cat([b.indices for b in plan.task(0, 0).phases[0]])
    there = torch.cat([b.indices for b in plan.task(**other).phases[0]])
    assert not torch.equal(here % 8, there % 8)


def test_the_seed_changes_the_batches():
    a, b = planner().task(0, 0), planner(streams=Streams(2)).task(0, 0)
    assert epochs(a, 3) != epochs(b, 3)


def test_augmentation_changes_no_batch():
    assert epochs(planner(num_draws=3).task(0, 0), 3) == epochs(planner().task(0, 0), 3)


def test_augmentation_draws_differ_by_epoch_and_from_the_pass():
    task = planner(num_draws=2, augmented_pass=True).task(0, 0)
    drawn = [batch.draws for batch in task.phases[0]]
    assert [tuple(d.shape) for d in drawn] == [(4, 2), (4, 2), (2, 2)] * 2
    everything = torch.cat([*drawn, task.pass_draws]).flatten()
    assert ((everything >= 0) & (everything < 1)).all()
    assert len(everything.unique()) == len(everything)


def test_no_pass_draws_unless_a_pass_is_augmented():
    assert planner(num_draws=2).task(0, 0).pass_draws is None
    assert planner(augmented_pass=True).task(0, 0).pass_draws is None


def test_phases_continue_the_count_of_epochs():
    one = planner(phases=(PhasePlan(3),)).task(0, 0)
    two = planner(phases=(PhasePlan(1), PhasePlan(2))).task(0, 0)
    assert [len(phase) for phase in two.phases] == [3, 6]
    assert epochs(one, 3) == epochs(two, 3)


def test_weights_by_samples_are_relative_to_the_mean():
    plan = planner(10, 7, 4)
    assert [plan.task(0, k).weight for k in range(3)] == [10 / 7, 1.0, 4 / 7]


def test_uniform_weights_are_one():
    assert [planner(weighting="uniform").task(0, k).weight for k in range(3)] == [1.0] * 3


def test_weights_by_batches_count_the_steps_made():
    plan = planner(9, 7, 3, weighting="batches", skip_singletons=True)
    assert [plan.task(0, k).weight for k in range(3)] == [4.0, 4.0, 2.0]


@pytest.mark.parametrize("weighting", ["samples", "uniform", "batches"])
def test_no_step_no_weight(weighting):
    dropped = planner(3, weighting=weighting, last_batch="drop").task(0, 0)
    skipped = planner(1, weighting=weighting, skip_singletons=True).task(0, 0)
    assert (dropped.num_steps, dropped.weight) == (0, 0.0)
    assert (skipped.num_steps, skipped.weight, skipped.skipped_singletons) == (0, 0.0, 2)


def test_tasks_tell_what_the_client_holds():
    task = planner().task(0, 1)
    assert sorted(task.indices.tolist()) == list(range(10, 17))
    assert task.indices.tolist() != sorted(task.indices.tolist())
    assert task.indices.tolist() == planner().task(5, 1).indices.tolist()
    assert task.counts.tolist() == [0, 7, 0]


class Counting(Streams):
    """Notes the names of the streams it is asked for."""

    def __init__(self, seed):
        super().__init__(seed)
        object.__setattr__(self, "asked", [])

    def _sequence(self, name, key):
        self.asked.append(name)
        return super()._sequence(name, key)


def test_what_only_some_rounds_need_is_drawn_when_it_is_asked_for_and_once():
    streams = Counting(1)
    task = planner(streams=streams, num_draws=2, augmented_pass=True, phases=(PhasePlan(1),)).task(3, 1)
    assert streams.asked == ["client", "augment"]
    first = task.indices, task.pass_draws, task.seed
    assert sorted(streams.asked[2:]) == ["layers", "pass", "proto"]
    assert (task.indices is first[0], task.pass_draws is first[1], task.seed == first[2]) == (True, True, True)
    assert len(streams.asked) == 5


def test_draws_that_wait_are_those_of_their_keys():
    plan = planner(num_draws=2, augmented_pass=True)
    task, later = plan.task(3, 1), plan.task(3, 1, (PhasePlan(1),), first_epoch=2)
    held, streams = np.arange(10, 17), plan.streams
    assert task.num_samples == 7
    assert task.indices.tolist() == held[streams.numpy("pass", 1).permutation(7)].tolist()
    assert task.pass_draws.tolist() == streams.numpy("proto", 3, 1).random((7, 2)).tolist()
    assert task.seed == streams.integer("layers", 3, 1)
    assert later.seed == streams.integer("layers", 3, 1, 2)


def test_a_moved_task_is_the_same_task():
    """To a device without data, where shapes are all there is to see."""
    paired = (PhasePlan(1, paired=True),)
    task = planner(10, phases=paired, num_draws=2, noise=1).task(0, 0)
    moved = task.on(torch.device("meta"))
    assert task.on(torch.device("cpu")) is task
    assert (moved.client, moved.weight, moved.num_steps, moved.seed) == (0, task.weight, task.num_steps, task.seed)
    for mine, other in zip(flat(moved.phases), flat(task.phases), strict=True):
        for here, there in ((mine, other), (mine.then, other.then)):
            parts = [(getattr(here, part), getattr(there, part)) for part in ("indices", "draws", "noise")]
            assert all(a.is_meta and a.shape == b.shape for a, b in parts)
    assert moved.counts.is_meta


def test_steps_instead_of_epochs_cut_the_same_batches_off():
    """Client 0 has 3 batches in an epoch, client 2 one: both make 7 steps, in the orders of epochs 0, 1, 2 and on."""
    for last_batch in ("keep", "drop", "wrap"):
        plan = planner(10, 7, 5, last_batch=last_batch)
        for client in range(3):
            whole = plan.task(4, client, (PhasePlan(9),))
            task = plan.task(4, client, (PhasePlan(None, 7),))
            assert task.num_steps == 7
            for mine, other in zip(task.phases[0], whole.phases[0], strict=False):
                assert mine.indices.tolist() == other.indices.tolist()


def test_a_phase_after_steps_goes_on_with_the_next_epoch():
    plan = planner(10, 7, 3)
    (_, second), (_, _, _, fourth) = (
        plan.task(0, 0, phases).phases for phases in ((PhasePlan(None, 7), PhasePlan(1)), (PhasePlan(1),) * 4)
    )
    assert [batch.indices.tolist() for batch in second] == [batch.indices.tolist() for batch in fourth]


def test_a_client_that_can_make_no_step_gives_up():
    alone = planner(1, 7, skip_singletons=True).task(0, 0, (PhasePlan(None, 5),))
    assert (alone.num_steps, alone.weight, alone.skipped_singletons) == (0, 0.0, 1)
    assert planner(3, 7, last_batch="drop").task(0, 0, (PhasePlan(None, 5),)).num_steps == 0
