"""A profiled run: the same results, times that add up, and files that a browser can read."""

import json
import os

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.core.tensorfile import read_tensors
from fedblade.core.timeline import OTHER, RECORDING, STAGES
from fedblade.runs import RunListener, _profile

STATEFUL = {"method": "scaffold", "partition": "iid", "engine": "sequential"}
OF_A_ROUND = {"plan", "load", "train", "sums", "server", "evaluate", "save", OTHER}


def read(path):
    return json.loads(path.read_text())


def weights(folder):
    return {name: leaf.tolist() for name, leaf in read_tensors(folder / "model.safetensors")[0].items()}


def without_seconds(rows):
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]


class Stop(RunListener):
    """Interrupts a run after a round."""

    def __init__(self, after):
        self.after = after

    def on_round(self, record):
        if record["round"] == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_profile_changes_no_bit_of_the_results(small_run, tmp_path, engine):
    plain = small_run(**STATEFUL | {"engine": engine}, out=tmp_path / "plain")
    timed = small_run(**STATEFUL | {"engine": engine}, out=tmp_path / "timed", profile=True)
    assert weights(tmp_path / "timed") == weights(tmp_path / "plain")
    assert without_seconds(timed.history) == without_seconds(plain.history)
    assert without_seconds([timed.summary]) == without_seconds([plain.summary])
    assert plain.profile is None
    assert not list((tmp_path / "plain").glob("profile*")) + list((tmp_path / "plain").glob("trace*"))


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_stages_add_up_to_rounds_and_rounds_to_the_run(small_run, tmp_path, monkeypatch, engine):
    # On a slow machine the recording would end, and be read back, in the middle of the round.
    monkeypatch.setattr(_profile, "OPERATOR_SECONDS", 1000.0)
    result = small_run(**STATEFUL | {"engine": engine}, out=tmp_path / "run", profile=True)
    stored = read(tmp_path / "run" / "profile.json")
    assert [row["round"] for row in stored["rounds"]] == [1, 2, 3]
    for row in (stored["total"], *stored["rounds"]):
        parts = {name: row[f"{name}_seconds"] for name in (*STAGES, OTHER)}
        assert row.keys() - {"round"} == {"seconds"} | {f"{name}_seconds" for name in parts}
        assert sum(parts.values()) == pytest.approx(row["seconds"])
    for row, recorded in zip(stored["rounds"], result.history, strict=True):
        assert {name for name in OF_A_ROUND if row[f"{name}_seconds"] > 0} == OF_A_ROUND
        assert row["prepare_seconds"] == 0
        trained = sum(row[f"{name}_seconds"] for name in ("plan", "load", "train", "sums", "server"))
        assert 0.8 * recorded["seconds"] < trained <= 1.001 * recorded["seconds"]
    for name in OF_A_ROUND - {OTHER}:
        inside = sum(row[f"{name}_seconds"] for row in stored["rounds"])
        assert inside == pytest.approx(result.profile.round_seconds[name])
        assert inside <= stored["total"][f"{name}_seconds"] * (1 + 1e-9)
    assert stored["total"]["prepare_seconds"] > 0
    assert result.profile.seconds.keys() == OF_A_ROUND | {"prepare"}


def test_the_trace_holds_all_stages_and_the_operators_of_the_second_round(small_run, tmp_path, monkeypatch):
    monkeypatch.setattr(_profile, "OPERATOR_SECONDS", 1000.0)
    result = small_run(**STATEFUL, out=tmp_path / "run", profile=True)
    events = read(result.profile.trace)["traceEvents"]
    for event in events:
        assert event["ph"] in {"X", "M"}
        assert {"pid", "tid", "name"} <= event.keys()
        assert event["ph"] == "M" or (event["ts"] >= 0 and event["dur"] >= 0)
    stages = [event for event in events if event.get("cat") == "stage"]
    assert {event["pid"] for event in stages} == {os.getpid()}
    named = [event for event in events if event["ph"] == "M" and event["name"] == "thread_name"]
    assert "stages" in {event["args"]["name"] for event in named}
    trained = [event["args"]["round"] for event in stages if event["name"] == "train"]
    assert trained == [1] * 3 + [2] * 3 + [3] * 3
    (second,) = (event for event in stages if event["name"] == "round 2")
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    assert any(event["name"] == "aten::addmm" for event in operators)
    # Operators start with the recording, which starts before the round; nearly all are inside of it.
    inside = [each for each in operators if second["ts"] - 50 <= each["ts"] <= second["ts"] + second["dur"] + 50]
    assert len(inside) > 0.95 * len(operators) > 500
    assert result.profile.operators_round == read(result.profile.path)["operators_round"] == 2


def test_stages_of_the_trace_nest_as_they_were_made(small_run, tmp_path):
    result = small_run(**STATEFUL, out=tmp_path / "run", profile=True)
    stages = [event for event in read(result.profile.trace)["traceEvents"] if event.get("cat") == "stage"]
    spans = sorted((event["ts"], -event["dur"]) for event in stages)
    open_until = []
    for start, length in spans:
        while open_until and open_until[-1] <= start + 1e-3:
            open_until.pop()
        assert not open_until or start - length <= open_until[-1] + 1e-3
        open_until.append(start - length)
    assert sum(event["name"] == "run" for event in stages) == 1


def test_a_run_of_one_round_has_the_operators_of_that_round(small_run, tmp_path):
    result = small_run(**STATEFUL, rounds=1, out=tmp_path / "run", profile=True)
    events = read(result.profile.trace)["traceEvents"]
    assert result.profile.operators_round == 1
    assert any(event.get("cat") == "cpu_op" for event in events)


def test_operators_are_limited_in_number_and_in_time(small_run, tmp_path, monkeypatch):
    monkeypatch.setattr(_profile, "MAX_OPERATORS", 20)
    few = small_run(**STATEFUL, out=tmp_path / "few", profile=True)
    assert sum(event.get("cat") == "cpu_op" for event in read(few.profile.trace)["traceEvents"]) <= 20
    monkeypatch.setattr(_profile, "MAX_OPERATORS", 10**6)
    everything = small_run(**STATEFUL, out=tmp_path / "all", profile=True)
    monkeypatch.setattr(_profile, "OPERATOR_SECONDS", 0.0)
    short = small_run(**STATEFUL, out=tmp_path / "short", profile=True)
    numbers = [
        sum(event.get("cat") == "cpu_op" for event in read(each.profile.trace)["traceEvents"])
        for each in (short, everything)
    ]
    assert 0 <= numbers[0] < numbers[1] / 3
    monkeypatch.setattr(_profile, "_MAX_BYTES", 10)
    none = small_run(**STATEFUL, out=tmp_path / "none", profile=True)
    assert not any(event.get("cat") == "cpu_op" for event in read(none.profile.trace)["traceEvents"])


def test_an_interrupted_run_leaves_its_profile_and_a_resumed_one_adds_its_own(small_run, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        small_run(**STATEFUL, rounds=5, out=folder, profile=True, listener=Stop(2))
    first = (folder / "profile.json").read_bytes(), (folder / "trace.json").read_bytes()
    assert [row["round"] for row in json.loads(first[0])["rounds"]] == [1, 2]
    result = small_run(**STATEFUL, rounds=5, out=folder, resume=True, profile=True)
    assert ((folder / "profile.json").read_bytes(), (folder / "trace.json").read_bytes()) == first
    assert (result.profile.path.name, result.profile.trace.name) == ("profile-2.json", "trace-2.json")
    assert [row["round"] for row in read(result.profile.path)["rounds"]] == [3, 4, 5]
    assert (result.profile.rounds, result.profile.operators_round) == (3, 4)
    again = small_run(**STATEFUL, rounds=5, out=folder, resume=True, profile=True)
    assert again.profile is None
    assert sorted(path.name for path in folder.glob("profile*")) == ["profile-2.json", "profile.json"]
    plain = small_run(**STATEFUL, rounds=5, out=tmp_path / "plain")
    assert weights(folder) == weights(tmp_path / "plain")
    assert without_seconds(result.history) == without_seconds(plain.history)


def test_own_models_after_the_rounds_are_evaluation(small_run, tmp_path):
    result = small_run(method="fedper", out=tmp_path / "run", profile=True)
    inside, whole = result.profile.round_seconds["evaluate"], result.profile.seconds["evaluate"]
    assert whole > 1.05 * inside > 0


def test_exchanges_are_timed_too(small_run, tmp_path):
    """CCVR asks for statistics after the last round and calibrates with them."""
    result = small_run(method="ccvr", partition="iid", out=tmp_path / "run", profile=True)
    last = read(result.profile.path)["rounds"][-1]
    asked = result.history[-1]["exchange_seconds"]
    spent = sum(last[f"{name}_seconds"] for name in ("plan", "load", "sums", "server"))
    assert spent > 0.8 * asked


def test_the_table_gives_seconds_shares_and_means(tmp_path):
    profile = _profile.Profile(
        {"prepare": 1.0, "train": 6.0, "other": 1.0}, {"train": 6.0, "other": 0.5}, 4, 2, tmp_path, tmp_path
    )
    assert profile.table().splitlines() == [
        "stage        seconds     share   per round",
        "prepare        1.000    12.5 %",
        "train          6.000    75.0 %      1.5000",
        "other          1.000    12.5 %      0.1250",
        "all            8.000   100.0 %      1.6250",
    ]


def test_what_the_recording_takes_is_told_apart(small_run, tmp_path):
    result = small_run(**STATEFUL, out=tmp_path / "run", profile=True)
    stored = read(result.profile.path)
    assert stored["total"][f"{RECORDING}_seconds"] > 0
    assert RECORDING not in result.profile.seconds
    assert RECORDING not in result.profile.table()


def test_without_a_folder_there_is_nowhere_to_write(small_run):
    with pytest.raises(Misconfigured, match="out=DIR"):
        small_run(profile=True)


def test_a_run_that_cannot_start_writes_no_profile(small_run, tmp_path):
    small_run(out=tmp_path / "run")
    with pytest.raises(Misconfigured, match="already holds a run"):
        small_run(out=tmp_path / "run", profile=True)
    assert not (tmp_path / "run" / "profile.json").exists()
