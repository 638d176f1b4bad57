"""Slots that are refilled, on the CPU: the code that a GPU captures, step by step."""

from dataclasses import replace
from functools import reduce
from itertools import combinations

import pytest
import torch

from fedblade.core.phase import Lookahead, Phase
from fedblade.core.registry import engines, methods
from fedblade.core.state import MemoryStore
from fedblade.core.sums import Sums
from fedblade.engines import _slots
from fedblade.engines._slot_memory import Slots
from fedblade.engines._slots import SlotTrainer, can_replay
from fedblade.methods.fedavg import fedavg
from support.conformance import LR, assert_near, check_train, check_two_rounds, reference
from support.slots import slots_of, use_slots
from support.small_federation import BATCH_NORM, CNN, build, images, tasks

MILD = {"lambda_decorr": 1e-4}
METHODS = {
    "fedavg": {},
    "scaffold": {},
    "fedblade": MILD,
    "fedntd": {},
    "moon": {},
    "feddyn": {},
    "fedetf": {},
    "fednh": {},
    "fedavg+prox": {},
}
SETTINGS = {
    "plain": {},
    "batch_norm": BATCH_NORM,
    "persistent": {"persist": True, "clip": 0.5, **BATCH_NORM},
    "two_of_four": {"clients_per_round": 2, "persist": True},
    "wrapped": {"local.last_batch": "wrap", "weighting": "batches"},
    "dropped": {"local.batch_size": 20, "local.last_batch": "drop"},
}


@pytest.fixture(autouse=True)
def two_slots(monkeypatch):
    """So that four clients must take turns."""
    monkeypatch.setattr(_slots, "MOST_SLOTS", 2)


def make(method="fedavg", data=None, **overrides):
    setup = build(method, data, **overrides)
    engine = engines.get("stacked").make(setup.problem)
    assert can_replay(engine._problem)
    use_slots(engine, SlotTrainer())
    return engine, setup


@pytest.mark.parametrize("method", METHODS)
def test_slots_agree_with_the_clients_one_by_one(method):
    check_two_rounds(*make(method, **METHODS[method], **BATCH_NORM))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", ["fedavg", "fedblade", "scaffold", "fedntd"])
def test_slots_agree_in_every_setting(method, setting):
    check_two_rounds(*make(method, **METHODS[method], **SETTINGS[setting]))


@pytest.mark.parametrize("method", ["fedavg", "fedblade"])
def test_slots_agree_on_augmented_images(method):
    engine, setup = make(method, images(60, 10), **METHODS[method], **CNN, **{"dataset.augment": "crop_flip"})
    check_two_rounds(engine, setup)


def test_the_clients_did_take_turns():
    engine, setup = make()
    check_train(engine, setup)
    held = slots_of(engine)._memory
    assert held.num_slots == 2
    assert len(tasks(setup)) == 4
    assert int(held.tick) <= held.capacity


@pytest.mark.parametrize("method", ["fedavg", "fedblade", "scaffold"])
def test_rates_and_the_servers_state_may_change_between_rounds(method):
    """One trainer through four rounds, each with its own rate, from the states that the reference leaves."""
    engine, setup = make(method, rounds=4, **METHODS[method], **BATCH_NORM)
    server, own, seen = setup.start, {}, set()
    for round_ in range(4):
        lr = LR * 0.5**round_
        results = reference(setup, server, tasks(setup, round_), own, lr)
        own |= check_train(engine, setup, server, own, lr=lr)
        server = setup.method.server(server, reduce(Sums.__add__, (each.sums for each in results)))
        server = server.replace(round=round_ + 1)
        seen.add(id(slots_of(engine)._memory))
    assert len(seen) == 1, "one shape, one capture"


@pytest.mark.parametrize("known", [(), (0,), (1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("slots", [True, False])
def test_only_some_clients_bring_momentum(known, slots):
    """Those who never trained before start from none, beside others who did."""
    engine, setup = make(persist=True)
    use_slots(engine, slots_of(engine) if slots else None)
    results = reference(setup, setup.start, tasks(setup), {})
    own = {k: results[k].state for k in known}
    check_train(engine, setup, setup.start.replace(round=1), own)


@pytest.mark.thorough
@pytest.mark.parametrize("slots", [1, 4, 16])
def test_any_number_of_slots_gives_the_same(slots, monkeypatch):
    monkeypatch.setattr(_slots, "MOST_SLOTS", slots)
    check_two_rounds(*make("fedblade", **MILD, **BATCH_NORM))


def test_a_plan_grows_with_the_round(monkeypatch):
    """More ticks than there is room for take a longer plan."""
    monkeypatch.setattr(_slots, "CAPACITY", 3)
    engine, setup = make()
    check_two_rounds(engine, setup)
    capacity = slots_of(engine)._memory.capacity
    assert capacity % 3 == 0
    assert capacity > 3


def test_a_step_can_be_made_ready_after_a_round_that_filled_its_plan(monkeypatch):
    """The tick is then behind the plan's end; a cohort of another size needs a step of its own."""
    setup = build("fedavg", engine="stacked")
    cohort = tasks(setup)
    first, second = next(pair for pair in combinations(cohort, 2) if pair[0].num_steps == pair[1].num_steps)
    monkeypatch.setattr(_slots, "CAPACITY", first.num_steps)
    engine = setup.engine
    use_slots(engine, SlotTrainer())
    check_train(engine, setup, cohort=[first, second])
    assert slots_of(engine)._memory.capacity == first.num_steps
    check_train(engine, setup, cohort=[first])


def test_clients_move_to_the_slots_that_still_run(monkeypatch):
    """Sizes of rows differ, so that somebody is left alone in the last slot and goes on in the first."""
    moves = []
    monkeypatch.setattr(Slots, "move", _told(Slots.move, moves))
    engine, setup = make("fedblade", **MILD, **BATCH_NORM, **{"local.batch_size": 4})
    check_two_rounds(engine, setup)
    assert moves, "nobody moved: choose other clients"


def _told(function, told):
    def wrapper(*args):
        told.append(args[1:])
        return function(*args)

    return wrapper


def test_out_of_memory_halves_the_slots_and_goes_on(monkeypatch):
    """The group is trained again from what it received, with the same result."""
    engine, setup = make("fedblade", **MILD, **BATCH_NORM)
    replay = Slots.replay

    def short(self, size):
        if size > 1:
            raise torch.cuda.OutOfMemoryError("pretended")
        replay(self, size)

    monkeypatch.setattr(Slots, "replay", short)
    with pytest.warns(UserWarning, match="at most 1 of the clients"):
        check_two_rounds(engine, setup)
    assert slots_of(engine)._memory.num_slots == 1


@pytest.mark.filterwarnings("ignore:the GPU's memory")
def test_out_of_memory_with_one_slot_is_an_error(monkeypatch):
    monkeypatch.setattr(_slots, "MOST_SLOTS", 1)
    engine, setup = make()

    def never(self, size):
        raise torch.cuda.OutOfMemoryError("pretended")

    monkeypatch.setattr(Slots, "replay", never)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        engine.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("slots", [True, False])
def test_training_does_not_depend_on_what_the_caller_switched_off(context, slots):
    engine, setup = make(**BATCH_NORM)
    use_slots(engine, slots_of(engine) if slots else None)
    plain = engine.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)
    again, other = make(**BATCH_NORM)
    use_slots(again, slots_of(again) if slots else None)
    with context():
        found = again.train(other.start, tasks(other), MemoryStore(), LR, lambda client: None)
    assert_near(found.sums["delta"], plain.sums["delta"], 0.0)


ONE_STEP_SERVES = {
    "two_phases": replace(fedavg(), phases=(Phase(("head",), epochs=1), Phase(("body",), epochs=1))),
    "paired": replace(fedavg(), phases=(Phase(lookahead=Lookahead(lambda v: v.params, fresh_batch=True)),)),
}


@pytest.mark.parametrize("name", ONE_STEP_SERVES)
def test_methods_whose_steps_differ_are_not_replayed(name):
    setup = build(ONE_STEP_SERVES[name])
    assert not can_replay(setup.problem)


@pytest.mark.parametrize("name", methods.names())
def test_registered_methods_are_replayed_where_one_step_serves(name):
    setup = build(name)
    method = setup.method
    terms = method.phases[0].losses or method.losses
    serves = len(method.phases) == 1 and method.phases[0].track is None and not method.phases[0].paired
    serves = serves and not any(
        type(term).__name__ in ("AnchorMatching", "Generated", "GeneratedMatch") for term in terms
    )
    assert can_replay(setup.problem) == serves


@pytest.mark.parametrize("name", ["ditto", "fedrep", "fedfm", "fedgen", "perfedavg"])
def test_methods_with_tracks_phases_rounds_or_pairs_are_not_replayed(name):
    setup = build(name)
    assert not can_replay(setup.problem)


def test_a_term_that_warms_up_is_not_replayed():
    assert not can_replay(build("fedblade", **{"decorr.warmup": 2}).problem)
