"""A table on the command line: trained on, predicted for, and refused in one line."""

import json

import numpy as np


def test_a_table_is_trained_on_and_predicted_for(cli, tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        f"{x:.3f},{'north' if k % 2 else 'south'},{'ill' if x > 0 else 'well'}"
        for k, x in enumerate(rng.normal(size=80))
    ]
    (tmp_path / "a.csv").write_text("\n".join(["x,ward,outcome", *rows]) + "\n")
    settings = ["dataset=files", "dataset.path=a.csv", "model=mlp", "num_clients=2", "clients_per_round=2", "rounds=1"]
    few = [part for setting in [*settings, "method=fedavg", "partition=iid"] for part in ("--set", setting)]
    assert "dataset.label=NAME" in cli("run", *few).mistake()
    cli("run", *few, "--set", "dataset.label=outcome", "--out", "mine").done()

    predicted = json.loads(cli("predict", "mine", "a.csv", "--json").done().out)
    assert len(predicted) == 80
    assert {row["label"] for row in predicted} <= {"ill", "well"}
    (tmp_path / "b.csv").write_text("x,label\n1,2\n")
    assert "has no column 'ward'; expected the columns of training" in cli("predict", "mine", "b.csv").mistake()
