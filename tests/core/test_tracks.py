"""Models in the clients' state that train beside the received one: each as if it were alone."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.method import model
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as train_locally
from fedblade.core.outcome import train_client
from fedblade.core.phase import Phase, Sgd
from fedblade.core.problem import PERSONAL
from fedblade.core.terms import GradientTerm
from fedblade.losses import CrossEntropy, Proximal
from fedblade.methods.fedavg import fedavg
from fedblade.runs import prepare
from support.one_client import adapt_client
from support.own_modules import Noisy
from support.small_federation import (
    BATCH_NORM,
    CNN,
    assert_different,
    assert_same_bits,
    build,
    configure,
    images,
    tasks,
    train,
    vectors,
)

LR = 0.05
BESIDE = Phase(track="own")


def tracked(*phases, **changes):
    return replace(fedavg(), phases=phases or (Phase(), BESIDE), client_state={"own": model}, **changes)


def local(setup, task, own=None, start=None):
    return train_locally(setup.problem, receive(setup.problem, start or setup.start, task, own, LR))


def indices(phase):
    return [batch.indices.tolist() for batch in phase]


@pytest.mark.parametrize("order", [(Phase(), BESIDE), (BESIDE, Phase())], ids=["after", "before"])
def test_a_track_sees_the_batches_it_would_see_alone(order):
    alone, setup = build(data=images(), **CNN), build(tracked(*order), images(), **CNN)
    for mine, expected in zip(tasks(setup), tasks(alone), strict=True):
        for phase in mine.phases:
            assert indices(phase) == indices(expected.phases[0])


def test_phases_of_one_track_count_their_epochs_together():
    """Head then body on the main model, whatever happens on the track between them."""
    plain = build(replace(fedavg(), phases=(Phase(epochs=1), Phase(epochs=2))))
    setup = build(tracked(Phase(epochs=1), Phase(epochs=3, track="own"), Phase(epochs=2), Phase(track="own")))
    mine, expected = tasks(setup)[2], tasks(plain)[2]
    assert [indices(mine.phases[i]) for i in (0, 2)] == [indices(phase) for phase in expected.phases]
    fourth_and_fifth = build(replace(fedavg(), phases=(Phase(epochs=3), Phase(epochs=2))))
    assert [indices(mine.phases[i]) for i in (1, 3)] == [indices(phase) for phase in tasks(fourth_and_fifth)[2].phases]


def test_a_track_draws_the_augmentation_it_would_draw_alone():
    settings = {**CNN, "dataset.augment": "crop_flip"}
    alone, setup = build(data=images(), **settings), build(tracked(), images(), **settings)
    for mine, expected in zip(tasks(setup), tasks(alone), strict=True):
        for phase in mine.phases:
            for a, b in zip(phase, expected.phases[0], strict=True):
                assert torch.equal(a.draws, b.draws)


def test_a_track_trains_like_a_model_alone():
    """From the same start and with the same losses the model beside equals the main one."""
    setup = build(tracked(), **BATCH_NORM)
    row, _ = local(setup, tasks(setup)[2])
    own = row.tracks["own"]
    assert_same_bits(own.params | own.buffers, row.params | row.buffers)
    assert_different(own.params | own.buffers, setup.start.params | setup.start.buffers)


@pytest.mark.parametrize("first", [True, False])
def test_the_main_model_does_not_notice_a_track(first):
    beside = Phase(track="own", epochs=1, sgd=Sgd(lr=0.3), losses=(CrossEntropy(weight=2.0), Proximal(weight=0.5)))
    phases = (beside, Phase()) if first else (Phase(), beside)
    changes = {"rounds": 3, "clients_per_round": 2, "weighting": "uniform", **BATCH_NORM}
    ran, plain = train(tracked(*phases), **changes), train(**changes)
    assert_same_bits(ran.state.params | ran.state.buffers, plain.state.params | plain.state.buffers)
    for row, expected in zip(ran.history, plain.history, strict=True):
        assert {key: row[key] for key in expected if not key.startswith("count_")} == {
            key: value for key, value in expected.items() if not key.startswith("count_")
        }


def test_weights_by_batches_do_not_count_the_steps_of_a_track():
    """Tracks of unequal length would shift the mean of the main models."""
    setup, plain = (build(m, weighting="batches") for m in (tracked(Phase(), Phase(track="own", steps=3)), "fedavg"))
    assert [task.weight for task in tasks(setup)] == [task.weight for task in tasks(plain)]


def test_the_state_is_saved_and_goes_on_at_the_next_participation():
    setup = build(tracked(), **BATCH_NORM)
    first, second = (setup.planner.task(round_, 1) for round_ in (0, 1))
    kept = train_client(setup.problem, setup.start, first, None, LR).state
    names = setup.start.params.keys() | setup.start.buffers.keys()
    assert kept["own"].keys() == names
    assert kept.keys() == {"own"}
    moved = setup.start.replace(
        params={name: kept["own"][name] for name in setup.start.params},
        buffers={name: kept["own"][name] for name in setup.start.buffers},
    )
    row, _ = local(setup, second, kept)
    alone, _ = local(build(**BATCH_NORM), second_of(second), start=moved)
    assert_same_bits(row.tracks["own"].params, alone.params)
    assert_same_bits(row.tracks["own"].buffers, alone.buffers)
    assert_different(row.params, alone.params)


def second_of(task):
    """The task of a method with one phase."""
    return replace(task, phases=(task.phases[1],))


def test_what_was_received_stays_as_it_was():
    setup = build(tracked(), **BATCH_NORM)
    received = receive(setup.problem, setup.start, tasks(setup)[0], None, LR)
    before = {name: leaf.clone() for name, leaf in received.client["own"].items()}
    train_locally(setup.problem, received)
    assert_same_bits(received.client["own"], before)


def test_logs_of_a_track_carry_its_name():
    setup = build(tracked(Phase(), Phase(track="own", losses=(CrossEntropy(), CrossEntropy(weight=0.1)))))
    _, trace = local(setup, tasks(setup)[0])
    main, beside = trace[0], trace[-1]
    assert main.keys() == {"loss_supervised"}
    assert beside.keys() == {"own_loss_supervised", "own_loss_supervised_2"}


def test_counters_of_a_track_are_added_to_the_others(monkeypatch):
    """Health counters are totals of a round; a prefix would hide them from the flags."""
    setup = build(tracked())
    head = type(setup.problem.network.head)
    monkeypatch.setattr(head, "constrain", lambda self, params: {"count_bounded": torch.ones(())})
    task = tasks(setup)[0]
    log = train_client(setup.problem, setup.start, task, None, LR).log
    assert log.means()["count_bounded"] == task.num_steps


def test_sums_count_the_steps_of_the_received_model_alone():
    seen = []
    update = {"own": lambda view: seen.append((view.num_steps, view.effective_steps)) or view.client["own"]}
    setup = build(tracked(client_update=update), momentum=0.0)
    task = tasks(setup)[2]
    state = train_client(setup.problem, setup.start, task, None, LR).state
    assert seen == [(len(task.phases[0]), float(len(task.phases[0])))]
    assert_different(state["own"], setup.start.params)


def test_a_track_in_a_state_with_other_leaves_keeps_its_model_alone():
    setup = build(replace(tracked(), client_state={"own": lambda view: model(view) | {"seen": torch.zeros(())}}))
    row, _ = local(setup, tasks(setup)[0])
    assert row.tracks["own"].params.keys() == setup.start.params.keys()


def test_a_track_needs_its_state():
    with pytest.raises(Misconfigured, match=r"Phase\.track names 'mine'"):
        replace(fedavg(), phases=(Phase(track="mine"),), client_state={"own": model})


def test_a_draft_starts_as_the_received_model_shows_itself_to_later_phases_and_is_dropped():
    seen = []

    @dataclass(frozen=True, kw_only=True)
    class Looks(GradientTerm):
        name: ClassVar[str] = "looks"

        def gradient(self, view):
            seen.append({name: leaf.clone() for name, leaf in view.client["draft"].items()})
            return {}

    phases = (Phase(track="draft"), Phase(losses=(CrossEntropy(), Looks())))
    setup, alone = build(replace(fedavg(), drafts=("draft",), phases=phases)), build()
    later = setup.start.replace(params={name: leaf + 0.1 for name, leaf in setup.start.params.items()})
    task = tasks(setup)[0]
    result = train_client(setup.problem, later, task, None, LR)
    row, _ = train_locally(alone.problem, receive(alone.problem, later, tasks(alone)[0], None, LR))
    assert_same_bits(seen[0], row.params | row.buffers)
    assert len(seen) == len(task.phases[1])
    assert result.state == {}
    with pytest.raises(Misconfigured, match="'own' is a draft and a client state"):
        replace(fedavg(), drafts=("own",), client_state={"own": model})


def test_layers_that_draw_are_seeded_for_the_client():
    setup = prepare(configure(tracked(), model="object"), vectors(), Noisy())
    a, b = (local(setup, tasks(setup)[0])[0] for _ in range(2))
    assert_same_bits(a.tracks["own"].params, b.tracks["own"].params)


def test_tuning_a_track_leaves_the_rest_of_the_state_alone():
    setup = build(tracked())
    task = replace(tasks(setup)[0], phases=tasks(setup)[0].phases[:1])
    state = adapt_client(setup.problem, setup.start, task, None, LR, (BESIDE,)).state
    assert_same_bits(state[PERSONAL], setup.start.params)
    assert_different(state["own"], setup.start.params)


def test_tuning_without_a_step_changes_nothing():
    """A client whose samples do not fill a batch has no step to divide by."""
    update = {"own": lambda view: {n: leaf / np.float64(view.num_steps) for n, leaf in view.params.items()}}
    setup = build(replace(fedavg(), client_state={"own": model}, client_update=update))
    idle = replace(tasks(setup)[0], phases=((),))
    own = {"own": {name: leaf + 1 for name, leaf in setup.start.params.items()}}
    assert adapt_client(setup.problem, setup.start, idle, None, LR, (Phase(),)).state == {}
    assert adapt_client(setup.problem, setup.start, idle, own, LR, (Phase(),)).state == own


def test_what_only_a_track_trains_does_not_travel_up():
    """The received model's head never changes, whatever the client does with the head of its own model."""
    setup = build(tracked(Phase(trains=("body",)), BESIDE))
    result = train_client(setup.problem, setup.start, tasks(setup)[0], None, LR)
    assert result.sums["delta"].keys() == {name for name in setup.start.params if name.startswith("body.")}
    assert_different(
        {"head.weight": result.state["own"]["head.weight"]}, {"head.weight": setup.start.params["head.weight"]}
    )
