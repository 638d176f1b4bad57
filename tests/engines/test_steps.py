"""`local.steps`: a number of steps in place of epochs, for every method that lasts as long as the run says."""

import pytest

import fedblade
from fedblade.runs import load_config, prepare
from fedblade.runs._overview import overview

QUICK = {
    "dataset": "digits", "model": "mlp", "hidden": [8], "dim": 8, "partition": "iid", "num_clients": 4, "rounds": 2,
    "clients_per_round": 2, "batch_size": 128, "evaluation.metrics": [], "protocol": "ft", "weighting": "batches",
}  # fmt: skip
# An epoch has 3 batches for every client; a step of Per-FedAvg takes two, and an odd last one is left out.
STEPS = {"fedavg": 6, "scaffold": 6, "fednova": 6, "ditto": 6, "fedavg-ft": 6, "perfedavg": 2, "fedrep": 6}


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_as_many_steps_as_the_epochs_have_give_the_same_bits(engine, tmp_path):
    for method, steps in STEPS.items():
        found = []
        for number, length in enumerate(({"local.epochs": 2}, {"local.steps": steps})):
            result = fedblade.run(method=method, engine=engine, out=tmp_path / f"{method}{number}", **QUICK, **length)
            rows = [{key: value for key, value in row.items() if "seconds" not in key} for row in result.history]
            found.append((rows, result.summary.get("personal_accuracy")))
        assert found[0] == found[1], method


def test_every_client_makes_as_many_steps_in_either_engine(tmp_path):
    uneven = {**QUICK, "partition": "dirichlet", "alpha": 0.3, "min_size": 1, "local.steps": 5}
    rows = []
    for engine in ("sequential", "stacked"):
        result = fedblade.run(method="fednova", engine=engine, out=tmp_path / engine, **uneven)
        rows.append([row["test_accuracy"] for row in result.history])
    assert rows[0] == pytest.approx(rows[1], abs=0.3)


def test_the_first_line_of_a_run_names_what_a_client_does_in_a_round():
    lengths = {
        "40 rounds of 30 local steps": {"local.steps": 30},
        "1 round of 1 local epoch": {"rounds": 1, "epochs": 1},
    }
    for words, length in lengths.items():
        changes = {**QUICK, "rounds": 40, "method": "fedavg", **length}
        assert f"2 per round, {words}, seed" in overview(prepare(load_config(None, changes)[0])).description
