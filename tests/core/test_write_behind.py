"""States of clients that are written in the background, and states that no round reads."""

import shutil
import threading
from dataclasses import replace

import pytest
import torch

from fedblade.core.disk_store import DiskStore
from fedblade.core.errors import CorruptFile, Misconfigured, RunFailed
from fedblade.core.method import model
from fedblade.core.phase import Phase
from fedblade.core.state import MemoryStore
from fedblade.core.state_writer import StateFileWriter
from fedblade.core.terms import Term, TermValue
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from fedblade.personal import local_model
from fedblade.runs import execute
from support.conformance import LR, check_two_rounds
from support.small_federation import build, configure, tasks, vectors

KEEPING = replace(fedavg(), client_state={"own": model}, client_update={"own": local_model}, write_only=("own",))


def state(number):
    return {"own": {"w": torch.full((3,), float(number))}}


@pytest.fixture
def go(monkeypatch):
    """Nothing is written before this event is set."""
    event, append = threading.Event(), StateFileWriter.append

    def slow(self, states):
        assert event.wait(20)
        append(self, states)

    monkeypatch.setattr(StateFileWriter, "append", slow)
    yield event
    event.set()


def test_put_all_does_not_wait_and_flush_does(tmp_path, go):
    store = DiskStore(tmp_path)
    store.put_all(0, {client: state(client) for client in range(6)})
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0]
    go.set()
    store.flush()
    assert [store.get(client, 1)["own"]["w"][0] for client in range(6)] == list(range(6))


def test_a_state_that_is_being_written_is_waited_for(tmp_path, go):
    store = DiskStore(tmp_path)
    store.put_all(0, {4: state(4)})
    threading.Timer(0.05, go.set).start()
    assert torch.equal(store.get(4, 1)["own"]["w"], torch.full((3,), 4.0))


def test_many_states_come_in_the_order_asked_for(tmp_path):
    store = DiskStore(tmp_path)
    store.put_all(0, {client: state(client) for client in (1, 2, 3)})
    found = store.get_all([3, 9, 1], 1)
    assert found[1] is None
    assert [int(found[position]["own"]["w"][0]) for position in (0, 2)] == [3, 1]


def test_an_error_of_a_writer_reaches_the_run_again_and_again(tmp_path):
    """The folder is gone when the states are written."""
    store = DiskStore(tmp_path / "clients")
    store.put_all(0, {1: state(1), 2: state(2)})
    store.flush()
    shutil.rmtree(tmp_path / "clients")
    for call in (store.flush, lambda: store.contents(1), lambda: store.get(7, 1)):
        call()
    for _ in range(2):
        with pytest.raises(CorruptFile, match="removed or renamed"):
            store.put_all(1, {1: state(1), 2: state(2)})
    assert not (tmp_path / "clients").exists()


def test_a_flush_that_is_interrupted_is_not_the_last(tmp_path, monkeypatch, go):
    store = DiskStore(tmp_path)
    store.put_all(0, {4: state(4)})

    def interrupted(_futures):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("fedblade.core.disk_store.wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.flush()
    go.set()
    store.flush()
    assert DiskStore(tmp_path).get(4, 1) is not None


def test_other_clients_are_read_while_states_are_written(tmp_path, go):
    go.set()
    store = DiskStore(tmp_path)
    store.put(7, 0, state(7))
    go.clear()
    store.put_all(0, {4: state(4)})
    assert [int(found["own"]["w"][0]) for found in store.get_all([7, 7], 1)] == [7, 7]


@pytest.mark.parametrize("every", [1, 10])
def test_no_checkpoint_is_saved_without_its_states(every, tmp_path, monkeypatch):
    """A state of round 2 cannot be written. The run ends, and resumes from before to the same model."""

    def run(name, **given):
        config = configure("scaffold", engine="stacked", rounds=3, **{"checkpoint.every": every})
        execute(config, out=tmp_path / name, dataset=vectors(), **given)
        return (tmp_path / name / "model.safetensors").read_bytes()

    append = StateFileWriter.append

    def full(self, states):
        if any((client, round_) == (2, 1) for client, round_, _, _ in states):
            raise RunFailed("no space left")
        append(self, states)

    expected = run("whole")
    with monkeypatch.context() as patched:
        patched.setattr(StateFileWriter, "append", full)
        with pytest.raises(RunFailed, match="no space"):
            run("cut")
    assert run("cut", resume=True) == expected


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_state_that_no_round_reads_is_kept_and_not_loaded(engine):
    setup = build(KEEPING, engine=engine)

    class Store(MemoryStore):
        def get(self, client, before_round):
            raise AssertionError("a round asked for a state that it does not read")

        def get_all(self, clients, before_round):
            raise AssertionError("a round asked for states that it does not read")

    store = Store()
    setup.engine.train(setup.start, tasks(setup), store, LR, lambda client: None)
    assert MemoryStore.get(store, 2, 1)["own"].keys() == setup.start.params.keys()


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_engines_agree_on_states_that_no_round_reads(engine):
    setup = build(KEEPING, engine=engine)
    check_two_rounds(setup.engine, setup)


def test_a_term_that_reads_such_a_state_fails():
    class Reads(Term):
        name = "reads"

        def __call__(self, view):
            return TermValue(view.client["own"]["head.bias"].sum())

    setup = build(replace(KEEPING, losses=(CrossEntropy(), Reads())), engine="sequential")
    with pytest.raises(KeyError, match="own"):
        setup.engine.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)


def test_only_states_that_are_made_anew_can_be_write_only():
    with pytest.raises(Misconfigured, match="write_only"):
        replace(fedavg(), client_state={"own": model}, write_only=("own",))


def test_a_track_needs_a_state_that_is_read():
    with pytest.raises(Misconfigured, match="track"):
        replace(KEEPING, phases=(Phase(track="own"),))


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_client_without_a_step_keeps_a_state_that_no_round_reads(engine):
    setup = build(KEEPING, engine=engine)
    store, chosen = MemoryStore(), tasks(setup)
    setup.engine.train(setup.start, chosen, store, LR, lambda client: None)
    idle = [replace(task, round=1, phases=((),)) for task in chosen]
    saved = []
    store.put = lambda client, round_, kept: saved.append((client, kept.keys()))
    setup.engine.train(setup.start.replace(round=1), idle, store, LR, lambda client: None)
    assert saved == [(task.client, {"own"}) for task in idle]
