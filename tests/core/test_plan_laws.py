"""Plans: every sample once per epoch, and nothing but (seed, round, client) decides anything."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.lengths import PhasePlan
from fedblade.core.plan import Planner
from fedblade.core.streams import Streams


class Held:
    def __init__(self, samples):
        self.samples = np.array(samples, dtype=np.int64)

    def indices(self, client, round_index):
        return self.samples

    def counts(self, client, round_index):
        return np.array([len(self.samples)])

    def removed(self, client, round_index):
        return None


@st.composite
def plans(draw):
    samples = draw(st.lists(st.integers(0, 500), min_size=1, max_size=30, unique=True))
    size = draw(st.integers(1, 12))
    return Planner(
        streams=Streams(draw(st.integers(0, 9))),
        shards=Held(samples),
        phases=tuple(PhasePlan(e) for e in draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))),
        batch_size=size,
        last_batch=draw(st.sampled_from(["keep", "drop", "wrap"])),
        weighting=draw(st.sampled_from(["samples", "uniform", "batches"])),
        mean_samples=7.0,
        skip_singletons=draw(st.booleans()),
        num_draws=draw(st.integers(0, 2)),
        augmented_pass=draw(st.booleans()),
        device=torch.device("cpu"),
    )


@settings(max_examples=150, deadline=None)
@given(plans(), st.integers(0, 50), st.integers(0, 50))
def test_each_epoch_holds_the_samples_the_rule_promises(plan, round_, client):
    task = plan.task(round_, client)
    held, size = sorted(plan.shards.samples.tolist()), plan.batch_size
    batches = [b for phase in task.phases for b in phase]
    assert all(set(b.indices.tolist()) <= set(held) for b in batches)
    assert all(len(b.indices) > 1 or not plan.skip_singletons for b in batches)
    used = sum(len(b.indices) for b in batches) + task.skipped_singletons
    epochs = sum(phase.epochs for phase in plan.phases)
    full = -(-len(held) // size)
    promised = {"keep": len(held), "drop": len(held) // size * size, "wrap": full * size}[plan.last_batch]
    assert used == epochs * promised
    if plan.last_batch == "keep" and not task.skipped_singletons:
        drawn = sorted(i for b in batches for i in b.indices.tolist())
        assert drawn == sorted(held * epochs)
    assert (task.weight > 0) == (len(batches) > 0)


PHASES = st.builds(
    PhasePlan,
    epochs=st.integers(1, 3),
    steps=st.none() | st.integers(1, 9),
    paired=st.booleans(),
    track=st.sampled_from([None, "own"]),
) | st.builds(PhasePlan, epochs=st.none(), steps=st.integers(1, 9), paired=st.booleans())


@settings(max_examples=150, deadline=None)
@given(plans(), st.lists(PHASES, min_size=1, max_size=3))
def test_a_plan_has_the_steps_of_the_workload(plan, phases):
    """The server of a deployment counts the workload without the samples."""
    task, work = plan.task(2, 3, tuple(phases)), plan.workload(len(plan.shards.samples), phases)
    assert tuple(len(batches) for batches in task.phases) == work.steps
    assert (task.skipped_singletons, task.weight) == (work.skipped_singletons, work.weight)


@settings(max_examples=60, deadline=None)
@given(plans(), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=6))
def test_questions_asked_before_change_no_answer(plan, asked):
    answers = [plan.task(*key) for key in asked]
    again = dict(zip(reversed(asked), (plan.task(*key) for key in reversed(asked)), strict=True))
    for key, answer in zip(asked, answers, strict=True):
        mine = [b for phase in answer.phases for b in phase]
        other = [b for phase in again[key].phases for b in phase]
        assert all(torch.equal(a.indices, b.indices) for a, b in zip(mine, other, strict=True))
        if plan.num_draws:
            assert all(torch.equal(a.draws, b.draws) for a, b in zip(mine, other, strict=True))
