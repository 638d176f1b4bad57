"""Compare methods on my data and my model in Python, look for a learning rate, and take the best model."""

import fedblade
from support.five_modules import Mlp, arrays


def test_compare_in_python(tmp_path):
    mine = {"dataset": arrays("mlp"), "model": Mlp(), "num_clients": 10, "rounds": 2}
    comparison = fedblade.compare(methods=["fedavg", "fedetf"], seeds=[1, 2], out=tmp_path / "compared", **mine)

    assert len(comparison) == 4
    assert [result.summary["seed"] for result in comparison] == [1, 2, 1, 2]
    assert "Comparison of fedavg and fedetf on arrays, 2 seeds" in repr(comparison)
    assert "±" in comparison._repr_html_()
    assert comparison.report() == tmp_path / "compared" / "report.html"

    # Again: finished runs are not trained again.
    again = fedblade.compare(methods=["fedavg", "fedetf"], seeds=[1, 2], out=tmp_path / "compared", **mine)
    assert [result.history for result in again] == [result.history for result in comparison]


def test_sweep_in_python():
    sweep = fedblade.sweep(
        method="fedavg", dataset=arrays("mlp"), model=Mlp(), num_clients=10, rounds=2,
        grid={"lr": [0.0001, 0.1]}, seeds=[1, 2], validation=True,
    )  # fmt: skip

    assert [trial.values for trial in sweep.trials] == [{"lr": 0.0001}, {"lr": 0.1}]
    assert sweep.best.accuracy.mean == max(trial.accuracy.mean for trial in sweep.trials)
    assert len(sweep.best.tested) == 2
    labels = sweep.best.tested[0].model.predict(arrays("mlp")[2])
    assert labels.shape == (60,)
