"""Populations too large to measure everyone's own model: a fixed choice is, and the run says so."""

import json
from statistics import fmean

import numpy as np
import pytest

from fedblade.runs import RunListener, _notes, _split, _work, load_config, prepare
from fedblade.runs._split import choose_evaluated_clients

LARGE = {"partition": "drawn", "samples": 10, "num_clients": 30, "clients_per_round": 4}


@pytest.fixture(autouse=True)
def limit(monkeypatch):
    """Twelve clients are many here."""
    for module in (_split, _notes, _work):
        monkeypatch.setattr(module, "MAX_EVALUATED_CLIENTS", 12)


class Notes(RunListener):
    """Keeps what the run says."""

    def __init__(self):
        self.told = []

    def on_note(self, text):
        self.told.append(text)


def test_up_to_the_limit_everyone_is_measured():
    everyone = np.arange(12)
    assert choose_evaluated_clients(0, everyone) is everyone


def test_above_the_limit_a_fixed_choice_is():
    everyone = np.arange(5, 500)
    chosen = choose_evaluated_clients(0, everyone)
    assert len(set(chosen.tolist())) == 12
    assert chosen.tolist() == sorted(chosen.tolist())
    assert set(chosen.tolist()) <= set(everyone.tolist())
    assert (
        chosen.tolist()
        == choose_evaluated_clients(0, everyone).tolist()
        != choose_evaluated_clients(1, everyone).tolist()
    )


def test_own_models_are_measured_on_the_chosen_and_the_run_says_so(small_run, tmp_path):
    notes = Notes()
    result = small_run(**LARGE, method="fedper", out=tmp_path / "run", listener=notes)
    rows = [json.loads(line) for line in (tmp_path / "run" / "clients.jsonl").read_text().splitlines()]
    chosen = choose_evaluated_clients(1, np.arange(30)).tolist()
    assert sorted(row["client"] for row in rows) == chosen
    assert result.summary["personal_accuracy"] == pytest.approx(fmean(row["accuracy"] for row in rows))
    assert notes.told == ["the clients' personal models are measured on 12 of 30 clients, chosen at random"]


def test_methods_without_own_models_say_nothing(small_run):
    notes = Notes()
    small_run(**LARGE, listener=notes)
    assert notes.told == []


def test_small_populations_say_nothing(small_run):
    notes = Notes()
    small_run(**LARGE | {"num_clients": 12}, method="fedper", listener=notes)
    assert notes.told == []


@pytest.mark.parametrize(("method", "what"), [("local_ce", "every client trains"), ("ccvr", "every client is asked")])
def test_what_grows_with_the_population_by_definition_is_told(small_run, method, what):
    notes = Notes()
    small_run(**LARGE, method=method, rounds=1, listener=notes)
    (told,) = [note for note in notes.told if what in note]
    assert told.startswith(f"{method}: ")
    assert "30 of them" in told


def test_the_mean_of_samples_and_the_clients_with_data_stay_what_they_were():
    setup = prepare(load_config("quickstart", {"method": "fedavg"})[0])
    sizes = setup.clients.train.sizes()
    assert setup.eligible.tolist() == np.flatnonzero(sizes > 0).tolist()
    assert setup.planner.mean_samples == float(sizes[setup.eligible].mean())


def test_a_small_drawn_split_stores_its_table_and_a_large_one_its_digest(small_run, tmp_path, monkeypatch):
    small_run(**LARGE, rounds=1, out=tmp_path / "small")
    stored = json.loads((tmp_path / "small" / "partition.json").read_text())
    assert np.array(stored["counts"]).shape == (30, 10)
    assert {sum(row) for row in stored["counts"]} == {10}
    small_run(**LARGE | {"num_clients": 1001}, rounds=1, out=tmp_path / "large")
    large = json.loads((tmp_path / "large" / "partition.json").read_text())
    assert large["counts"] is None
    assert (large["hardness"]["clients"], large["hardness"]["population"]) == (1000, 1001)
    assert large["digest"] != stored["digest"]


def test_of_many_clients_a_thousand_have_a_line_for_the_global_model(small_run, monkeypatch):
    monkeypatch.setattr(_split, "MAX_EVALUATED_CLIENTS", 10_000)
    few, many = (small_run(**LARGE | {"num_clients": number}, rounds=1).clients for number in (30, 1200))
    assert [record["client"] for record in few] == list(range(30))
    assert len({record["client"] for record in many}) == 1000
    assert max(record["client"] for record in many) > 1000
