"""Runs cut short while the clients' own models are tuned: they go on with the next client, to the same bits."""

import json
import signal
import time

import pytest

from fedblade.core.errors import CorruptFile
from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.results import RunDirectory
from fedblade.runs import RunListener

FALLING = '''
"""FedAvg whose server shrinks the model from a round on, so that the best model is not the last."""

from dataclasses import replace

from fedblade.methods.fedavg import fedavg


def falling(from_round: int = 4):
    """A method that gets worse."""

    def server(state, sums):
        moved = fedavg().server(state, sums)
        if state.round + 1 < from_round:
            return moved
        return moved.replace(params={name: 0 * leaf for name, leaf in moved.params.items()})

    return replace(fedavg(), server=server)
'''


class Stop(RunListener):
    """Raises when so many own models have been measured, or a round has been recorded."""

    def __init__(self, models=None, round_=None):
        self.models, self.round = models, round_

    def on_personal_model(self, done, total):
        if done == self.models:
            raise KeyboardInterrupt

    def on_round(self, record):
        if record["round"] == self.round:
            raise KeyboardInterrupt


@pytest.fixture
def falling(tmp_path):
    """A reference to the method that gets worse."""
    path = tmp_path / "falling.py"
    path.write_text(FALLING)
    return f"{path}:falling"


def rows(folder):
    return [json.loads(line) for line in (folder / "clients.jsonl").read_text().splitlines()]


def summary(folder):
    """What was written at the end, without the clock."""
    found = json.loads((folder / "summary.json").read_text())
    return {key: value for key, value in found.items() if "seconds" not in key}


@pytest.fixture
def same(outcome_of, tmp_path):
    """Compares a run that was cut short with an undisturbed one."""

    def compare(mine, folder):
        whole = tmp_path / "whole"
        mine.run(whole)
        assert (folder / "clients.jsonl").read_bytes() == (whole / "clients.jsonl").read_bytes()
        assert summary(folder) == summary(whole)
        assert outcome_of(folder) == outcome_of(whole)
        assert [row["client"] for row in rows(whole)] == list(range(mine.keys["num_clients"]))

    return compare


def cut(mine, folder, **stop):
    with pytest.raises(KeyboardInterrupt):
        mine.run(folder, resume=True, listener=Stop(**stop))
    return rows(folder) if (folder / "clients.jsonl").exists() else []


TUNED = {"method": "fedavg-ft", "rounds": 2, "protocol": "ft", "test_split": "matched"}


@pytest.mark.parametrize(
    "changes",
    [
        TUNED,
        TUNED | {"protocol": "gapa", "method": "fedavg"},
        TUNED | {"protocol": "pers_etf", "test_split": "holdout"},
    ],
    ids=["ft", "gapa", "pers_etf"],
)
def test_own_models_go_on_with_the_next_client(job, same, tmp_path, changes):
    mine, folder = job(**changes), tmp_path / "run"
    assert len(cut(mine, folder, models=1)) == 1
    assert summary(folder)["status"] == "interrupted"
    assert len(cut(mine, folder, models=5)) == 5
    mine.run(folder, resume=True)
    same(mine, folder)


def test_own_models_with_state_go_on(job, same, tmp_path, methods_of_mine):
    """What clients kept is read from the folder."""
    mine, folder = job(**TUNED | {"method": f"{methods_of_mine['scaffold']}-ft", "momentum": 0.0}), tmp_path / "run"
    cut(mine, folder, round_=1)
    cut(mine, folder, models=3)
    mine.run(folder, resume=True)
    same(mine, folder)


def test_a_run_cut_short_after_the_last_client_is_only_summed_up(job, same, tmp_path):
    mine, folder = job(**TUNED), tmp_path / "run"
    assert len(cut(mine, folder, models=8)) == 8
    mine.run(folder, resume=True)
    same(mine, folder)


@pytest.mark.parametrize("left", [1, 20, -2, -1])
def test_a_torn_last_line_is_measured_again(job, same, tmp_path, left):
    """From the first byte of the line to the end of its text without a line break."""
    mine, folder = job(**TUNED), tmp_path / "run"
    cut(mine, folder, models=4)
    path = folder / "clients.jsonl"
    *whole, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*whole, last[:left]]))
    mine.run(folder, resume=True)
    same(mine, folder)


def test_a_line_torn_by_a_bad_disk_takes_the_later_ones_with_it(job, same, tmp_path):
    mine, folder = job(**TUNED), tmp_path / "run"
    cut(mine, folder, models=5)
    path = folder / "clients.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b'{"client": 2, \x00\x00\n', *lines[3:]]))
    mine.run(folder, resume=True)
    same(mine, folder)


def test_rows_that_are_gone_are_made_again(job, same, tmp_path):
    mine, folder = job(**TUNED), tmp_path / "run"
    cut(mine, folder, models=5)
    (folder / "clients.jsonl").unlink()
    mine.run(folder, resume=True)
    same(mine, folder)


@pytest.mark.thorough
def test_a_killed_child_goes_on(job, same, tmp_path):
    mine, folder = job(**TUNED | {"num_clients": 40, "rounds": 1, "epochs": 3}), tmp_path / "run"
    child, deadline = mine.start(folder), time.monotonic() + 60
    while not ((folder / "clients.jsonl").exists() and rows_so_far(folder)) and child.poll() is None:
        assert time.monotonic() < deadline, "the child makes no progress"
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    mine.run(folder, resume=True)
    same(mine, folder)


def rows_so_far(folder):
    return (folder / "clients.jsonl").read_bytes().count(b"\n")


GAPA = {"protocol": "gapa", "test_split": "matched", "rounds": 6}


@pytest.mark.thorough
@pytest.mark.parametrize("stop", [{"round_": 5}, {"round_": 6}, {"models": 3}], ids=["rounds", "last", "tuning"])
def test_the_best_model_is_still_there_after_resuming(job, same, tmp_path, falling, stop):
    """It was found before the run was cut short, and no later round reaches it."""
    mine, folder = job(method=falling, **GAPA), tmp_path / "run"
    cut(mine, folder, **stop)
    mine.run(folder, resume=True)
    same(mine, folder)
    found = summary(folder)
    assert found["general_final_accuracy"] < found["general_accuracy"] == found["accuracy"]


@pytest.mark.thorough
def test_a_best_model_newer_than_the_checkpoint_changes_nothing(job, same, tmp_path, falling):
    """A kill between the two: the rounds after the checkpoint are done again and find the same best model."""
    mine, folder = job(method=falling, **GAPA, **{"checkpoint.every": 2}), tmp_path / "run"
    cut(mine, folder, round_=3)
    (folder / "checkpoints" / "round-000003.safetensors").unlink()
    best = (folder / "checkpoints" / "best.safetensors").read_bytes()
    mine.run(folder, resume=True)
    same(mine, folder)
    assert (folder / "checkpoints" / "best.safetensors").read_bytes() == best


OWN = {"protocol": "gapa", "test_split": "matched", "rounds": 5, "optimizer.lr": 0.5}


def one_checkpoint_less(folder, round_):
    """As if the run had been killed before it saved this round."""
    (folder / "checkpoints" / f"round-{round_:06d}.safetensors").unlink()


@pytest.mark.thorough
@pytest.mark.parametrize("stop", [{"round_": 2}, {"round_": 5}, {"models": 3}], ids=["rounds", "last", "tuning"])
@pytest.mark.parametrize("method", ["fedper", "fedgela"])
def test_every_clients_best_is_still_there_after_resuming(job, same, tmp_path, method, stop):
    """They are part of the checkpoint, whose bytes are compared too."""
    mine, folder = job(method=method, **OWN), tmp_path / "run"
    cut(mine, folder, **stop)
    mine.run(folder, resume=True)
    same(mine, folder)
    assert any(row["best_accuracy"] > row["accuracy"] for row in rows(folder))
    assert all(("best_general_accuracy" in row) == (method == "fedper") for row in rows(folder))


@pytest.mark.parametrize("method", ["fedper", "fedgela"])
def test_bests_are_those_of_the_checkpoint_that_is_resumed(job, same, tmp_path, method):
    """An older checkpoint knows nothing of the rounds after it, which are done again."""
    mine, folder = job(method=method, **OWN, **{"checkpoint.keep": 5}), tmp_path / "run"
    cut(mine, folder, round_=4)
    names = [folder / "checkpoints" / f"round-{round_:06d}.safetensors" for round_ in (2, 3)]
    older, newer = (read_tensors(name)[1]["best_accuracies"]["own"] for name in names)
    assert older.keys() == newer.keys()
    assert all(older[client] <= newer[client] for client in newer)
    assert older != newer
    for round_ in (3, 4):
        one_checkpoint_less(folder, round_)
    cut(mine, folder, round_=3)
    assert read_tensors(names[1])[1]["best_accuracies"]["own"] == newer
    mine.run(folder, resume=True)
    same(mine, folder)


def test_a_round_that_was_measured_but_not_completed_is_nobodys_best(job, same, tmp_path, monkeypatch):
    """Cut short between the measurement of a round and its end: the checkpoint of the round before stays as it was."""
    mine, folder = job(method="fedper", **OWN, **{"checkpoint.every": 5}), tmp_path / "run"
    append = RunDirectory.append

    def interrupted(self, name, row):
        if row.get("round") == 3:
            raise KeyboardInterrupt
        append(self, name, row)

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mine.run(folder)
    saved = read_tensors(folder / "checkpoints" / "round-000002.safetensors")[1]
    two = tmp_path / "two"
    job(method="fedper", **OWN | {"rounds": 2}).run(two)
    known = read_tensors(two / "checkpoints" / "round-000002.safetensors")[1]
    # States of the third round were written already; the checkpoint goes on without them.
    for facts in (saved, known):
        del facts["states"]
    assert saved == known
    mine.run(folder, resume=True)
    same(mine, folder)


@pytest.mark.thorough
def test_a_killed_child_keeps_every_clients_best(job, same, kill, tmp_path):
    mine, folder = job(method="fedper", **OWN | {"rounds": 30}), tmp_path / "run"
    kill(mine.start(folder), folder, rounds=6)
    mine.run(folder, resume=True)
    same(mine, folder)


def test_a_checkpoint_without_bests_stops_the_run(job, tmp_path):
    mine, folder = job(method="fedper", **OWN), tmp_path / "run"
    cut(mine, folder, round_=3)
    for path in (folder / "checkpoints").glob("round-*.safetensors"):
        tensors, facts = read_tensors(path)
        write_tensors(path, tensors, {"round": facts["round"]})
    with pytest.raises(CorruptFile, match="best"):
        mine.run(folder, resume=True)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [truncate, lambda path: path.unlink()], ids=["torn", "gone"])
def test_a_best_model_that_cannot_be_read_stops_the_run(job, tmp_path, falling, damage):
    """Another model in its place would give other numbers without a word."""
    mine, folder = job(method=falling, **GAPA), tmp_path / "run"
    cut(mine, folder, round_=5)
    damage(folder / "checkpoints" / "best.safetensors")
    with pytest.raises(CorruptFile, match="best"):
        mine.run(folder, resume=True)


def test_a_finished_run_gives_its_rows_back(job, tmp_path):
    mine, folder = job(**TUNED), tmp_path / "run"
    first = mine.run(folder)
    again = mine.run(folder, resume=True)
    assert list(again.clients) == list(first.clients) == rows(folder)
