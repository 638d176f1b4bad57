"""Every method of the contract is there and runs by its name."""

import json

import pytest

from support.sample import sampled, thorough

CONTRACT = [
    "fedavg", "fedprox", "fedavgm", "scaffold", "fednova", "feddyn", "fedexp", "fedsol", "moon", "fedntd",
    "fedlc", "fedrs", "fedgen", "fedrcl", "fedproto", "fedfm", "fedbn", "feddecorr", "decov", "stdecov",
    "lsingular", "fedetf", "fedge", "fedgela", "fedla", "fedbabu", "spherefed", "dotreg", "feddr_plus",
    "fedblade", "fedper", "fedrep", "perfedavg", "ditto", "fedrod", "fednh", "ccvr", "feduv", "local_ce",
    "local_ce_etf", "local_dr",
]  # fmt: skip
ADDED = ("feddecorr", "lddecorr", "decov", "stdecov", "lsingular", "prox", "kd", "ntd", "ld", "moon", "fd")
BASES = ("fedavg", "fedbabu", "spherefed", "fedetf", "fedgela", "dotreg")
GRID = [f"{base}+{reg}" for base in BASES for reg in ("prox", "kd", "ntd", "ld", "moon", "fd")]
TUNED = [f"{base}-ft" for base in (*BASES, "feddr_plus")]
REGULARISED = [
    *(f"fedprox+{name}" for name in ADDED if name != "prox"),
    "fedavg+prox",
    "moon+feddecorr",
    "fedbn+feddecorr",
]
SMALL = ("rounds=3", "num_clients=6", "clients_per_round=3", "epochs=1", "min_size=5")


def run(cli, tmp_path, method, *settings):
    """Three rounds on the digits with the quickstart's network; the summary and the history."""
    flags = [part for setting in (f"method={method}", *SMALL, *settings) for part in ("--set", setting)]
    cli("run", *flags, "--out", "mine").done()
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text(encoding="utf-8"))
    history = [json.loads(line) for line in (tmp_path / "mine" / "history.jsonl").read_text().splitlines()]
    assert (summary["status"], summary["method"], len(history)) == ("finished", method, 3)
    return summary, history


def test_the_list_has_every_name_of_the_contract(cli):
    listed = json.loads(cli("list", "methods", "--json").done().out)
    assert {entry["name"] for entry in listed} >= {*CONTRACT}
    assert all(entry["summary"].strip() for entry in listed)


@pytest.mark.parametrize("method", sampled(CONTRACT))
def test_three_rounds_by_name(cli, tmp_path, method):
    summary, history = run(cli, tmp_path, method)
    assert all(0 <= row["test_accuracy"] <= 100 and row["test_loss"] >= 0 for row in history)
    personal = {"local_ce", "local_ce_etf", "local_dr", "fedper", "fedrep", "fedbn"}
    assert summary["accuracy_of"] == ("personal" if method in personal else "global")


@pytest.mark.parametrize("method", sampled(REGULARISED))
def test_regularisers_are_added_by_name(cli, tmp_path, method):
    run(cli, tmp_path, method)


@pytest.mark.slow
@pytest.mark.parametrize("method", GRID)
def test_the_synergy_grid_runs_by_name(cli, tmp_path, method):
    run(cli, tmp_path, method)


@pytest.mark.parametrize("method", [TUNED[0], *thorough(*TUNED[1:])])
def test_fine_tuning_by_name_leaves_a_result_for_every_client(cli, tmp_path, method):
    summary, _ = run(cli, tmp_path, method, "dataset.test_split=matched")
    rows = [json.loads(line) for line in (tmp_path / "mine" / "clients.jsonl").read_text().splitlines()]
    assert [row["client"] for row in rows] == list(range(6))
    values = sorted(row["accuracy"] for row in rows)
    assert summary["personal_accuracy"] == pytest.approx(sum(values) / 6)
    assert summary["personal_worst_decile"] == values[0]
