"""Listeners are told together, and a tracker gets every round once, whatever happens to it or to the run."""

import json
import warnings

import pytest

from fedblade.core.listener import ListenerGroup
from fedblade.runs import RunListener
from fedblade.trackers import attached_trackers
from fedblade.trackers._attach import TRACKERS, TrackerKind
from fedblade.trackers._backend import Opened, Session, scalars_of
from fedblade.trackers._tracker import PROGRESS, Tracker


class Heard(RunListener):
    """Keeps what it is told."""

    def __init__(self, name="", told=None):
        self.name, self.told, self.notes = name, [] if told is None else told, []

    def on_start(self, run, history):
        self.told.append((self.name, "start", run, list(history)))

    def on_client(self, round_, client):
        self.told.append((self.name, "client", round_, client))

    def on_round(self, row):
        self.told.append((self.name, "round", row))

    def on_personal_model(self, done, total):
        self.told.append((self.name, "own", done, total))

    def on_note(self, text):
        self.told.append((self.name, "note", text))
        self.notes.append(text)


class Kept:
    """A backend in memory: fails in the rounds it is told to, and forgets the run if `forgets`."""

    def __init__(self, fails=(), forgets=False, notes=()):
        self.fails, self.forgets, self.notes = fails, forgets, notes
        self.sessions, self.rounds, self.ends = [], [], []

    def open(self, session):
        self.sessions.append(session)
        return Opened("mine", 0 if self.forgets else session.last_round, self.notes)

    def log(self, round_, scalars):
        warnings.warn("an inside that is not ours", DeprecationWarning, stacklevel=1)
        if round_ in self.fails:
            raise ConnectionError("no way to https://ann:secret@example.org/api")
        self.rounds.append((round_, scalars))

    def close(self, status):
        self.ends.append(status)


def rows(*rounds):
    return [{"round": round_, "test_accuracy": 10.0 * round_} for round_ in rounds]


def tracker_of(backend, folder, notes):
    return Tracker("kept", backend, Session(folder, folder / "own", {"seed": 1}), notes.append)


def test_everyone_is_told_everything_in_order():
    told = []
    both = ListenerGroup((Heard("a", told), Heard("b", told)))
    both.on_start("setup", rows(1))
    both.on_client(2, 7)
    both.on_round({"round": 2})
    both.on_personal_model(1, 3)
    both.on_note("look")
    events = [("start", "setup", rows(1)), ("client", 2, 7), ("round", {"round": 2}), ("own", 1, 3), ("note", "look")]
    assert told == [(name, *event) for event in events for name in ("a", "b")]


def test_scalars_are_the_finite_numbers_without_the_round():
    row = {"round": 3, "clients": [1, 2], "test_loss": 0.5, "bytes_up": 7, "ece": None, "x": float("nan"), "y": "text",
           "z": float("inf")}  # fmt: skip
    assert scalars_of(row) == {"test_loss": 0.5, "bytes_up": 7.0}


def test_a_round_is_logged_once_over_all_sessions(tmp_path):
    backend, notes = Kept(), []
    first = tracker_of(backend, tmp_path, notes)
    first.on_start(None, [])
    for row in rows(1, 2, 3):
        first.on_round(row)
    # The run goes back to its checkpoint of round 2, does round 3 again, and goes on.
    second = tracker_of(backend, tmp_path, notes)
    second.on_start(None, rows(1, 2))
    for row in rows(3, 4):
        second.on_round(row)
    assert backend.rounds == [(n, {"test_accuracy": 10.0 * n}) for n in (1, 2, 3, 4)]
    assert [(session.run_id, session.last_round) for session in backend.sessions] == [(None, 0), ("mine", 3)]
    assert not notes


def test_a_tracker_that_comes_late_gets_the_rounds_before_it(tmp_path):
    backend = Kept()
    late = tracker_of(backend, tmp_path, [])
    late.on_start(None, rows(1, 2))
    late.on_round(rows(3)[0])
    assert [round_ for round_, _ in backend.rounds] == [1, 2, 3]


def test_a_store_that_lost_the_run_gets_all_of_it_again(tmp_path):
    backend = Kept(forgets=True)
    for history in ([], rows(1, 2)):
        tracker = tracker_of(backend, tmp_path, [])
        tracker.on_start(None, history)
        tracker.on_round(rows(len(history) + 1)[0])
    assert [round_ for round_, _ in backend.rounds] == [1, 1, 2, 3]


def test_a_torn_memory_begins_anew(tmp_path):
    (tmp_path / "own").mkdir()
    for torn in ("", "[1]", '{"identity": "mine"}', '{"identity": "mine", "logged": null}'):
        (tmp_path / "own" / PROGRESS).write_text(torn)
        backend, notes = Kept(), []
        tracker_of(backend, tmp_path, notes).on_start(None, rows(1))
        assert backend.sessions[0].run_id is None
        assert backend.rounds == [(1, {"test_accuracy": 10.0})]
        assert not notes


def test_a_failure_is_said_once_without_passwords_and_made_up_for_later(tmp_path):
    backend, notes = Kept(fails=(2,), notes=("sent to http://bob:pw@host/x",)), []
    tracker = tracker_of(backend, tmp_path, notes)
    tracker.on_start(None, [])
    for row in rows(1, 2, 3):
        tracker.on_round(row)
    tracker.close("finished")
    told, failed = notes
    assert told == "sent to http://host/x"
    assert "kept stopped (ConnectionError: no way to https://example.org/api)" in failed
    assert "The run goes on" in failed
    assert [round_ for round_, _ in backend.rounds] == [1]
    assert backend.ends == []
    backend.fails = ()
    tracker_of(backend, tmp_path, notes).on_start(None, rows(1, 2, 3))
    assert [round_ for round_, _ in backend.rounds] == [1, 2, 3]


def test_a_tracker_that_never_opened_is_not_closed(tmp_path):
    backend, notes = Kept(), []
    tracker = tracker_of(backend, tmp_path, notes)
    tracker.close("interrupted")
    assert backend.ends == []


def test_an_unwritable_folder_stops_the_tracker_only(tmp_path):
    (tmp_path / "own").write_text("a file in the way")
    notes = []
    tracker_of(Kept(), tmp_path, notes).on_start(None, [])
    assert len(notes) == 1
    assert "FileExistsError" in notes[0]


@pytest.mark.parametrize(
    ("error", "status"), [(None, "finished"), (ValueError(), "failed"), (KeyboardInterrupt(), "interrupted")]
)
def test_trackers_learn_how_the_run_ended(tmp_path, monkeypatch, error, status):
    backend, listener = Kept(), Heard("a")
    monkeypatch.setitem(TRACKERS, "kept", TrackerKind(lambda: backend, "json", "kept"))

    def go():
        with attached_trackers(["kept", "kept"], tmp_path, {"seed": 1}, listener) as everyone:
            everyone.on_start(None, [])
            everyone.on_round(rows(1)[0])
            if error is not None:
                raise error

    if error is None:
        go()
    else:
        with pytest.raises(type(error)):
            go()
    assert backend.ends == [status]
    assert backend.sessions[0].settings == {"seed": 1}
    assert [event[1] for event in listener.told] == ["start", "round"]
    assert json.loads((tmp_path / "kept" / PROGRESS).read_text()) == {"identity": "mine", "logged": 1}


def test_without_trackers_the_watcher_is_left_as_it_is(tmp_path):
    listener = RunListener()
    with attached_trackers([], tmp_path, {}, listener) as same:
        assert same is listener
    assert not list(tmp_path.iterdir())
