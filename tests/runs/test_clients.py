"""Runs of clients that bring their own data: engines agree, results go on, and everyone keeps the name."""

import json

import numpy as np
import pytest
import torch

import fedblade
from fedblade.core.errors import Misconfigured
from fedblade.data.digits import digits

SMALL = {
    "rounds": 2, "epochs": 1, "model": "mlp", "model.hidden": [8], "model.dim": 8, "metrics": "accuracy",
    "device": "cpu", "dtype": "float64",
}  # fmt: skip


def wards():
    """Clients of unequal size; two have test samples of their own."""
    whole = digits().train
    x, y = whole.inputs.astype(np.float32) / 16, whole.labels
    return {
        "north": (x[:200], y[:200], x[200:230], y[200:230]),
        "south": (x[300:380], y[300:380]),
        "east": (x[400:403], y[400:403], x[410:450], y[410:450]),
        "far west": (x[500:501], y[500:501]),
    }


@pytest.mark.parametrize("method", ["fedavg", "fedper"])
def test_engines_agree_on_unequal_clients_with_test_samples_of_their_own(method):
    one, many = (
        fedblade.run(clients=wards(), method=method, engine=engine, **SMALL) for engine in ("sequential", "stacked")
    )
    for name, tensor in one.model.state_dict().items():
        torch.testing.assert_close(tensor, many.model.state_dict()[name], rtol=1e-9, atol=1e-12)
    assert [record["name"] for record in one.clients] == ["north", "south", "east", "far west"]
    assert [record["test_samples"] for record in one.clients] == [30, 16, 40, 0]
    assert [record["train_samples"] for record in one.clients] == [200, 64, 3, 1]
    assert one.clients == many.clients


def test_the_test_set_is_that_of_all_clients_together():
    result = fedblade.run(clients=wards(), method="fedavg", **SMALL)
    measured = [record for record in result.clients if record["test_samples"]]
    right = sum(record["global_accuracy"] * record["test_samples"] for record in measured)
    assert result.summary["final_accuracy"] == pytest.approx(right / sum(record["test_samples"] for record in measured))


def test_unseen_clients_and_tuning_use_the_test_samples_of_each_client():
    result = fedblade.run(clients=wards(), method="fedavg-ft", unseen=0.25, **SMALL)
    assert sum(record["unseen"] for record in result.clients) == 1
    assert all(record["accuracy"] is not None for record in result.clients if record["test_samples"])


def test_a_run_goes_on_with_the_same_clients_only(tmp_path):
    out, given = tmp_path / "run", wards()

    fedblade.run(clients=given, method="fedavg", out=out, **SMALL)
    again = fedblade.run(clients=given, out=out, resume=True, rounds=3)
    assert again.history[-1]["round"] == 3
    stored = json.loads((out / "partition.json").read_text())
    assert (stored["name"], stored["client_names"]) == ("given", ["north", "south", "east", "far west"])
    assert "far west" in again.report(tmp_path / "page.html").read_text()
    x, y = given["south"]
    for changed, message in (
        ({**given, "south": (x, (y + 1) % 10)}, "the data set differs"),
        ({name: given[name] for name in ("north", "south")}, "num_clients = 4, but the data come from 2 clients"),
    ):
        with pytest.raises(Misconfigured, match=message):
            fedblade.run(clients=changed, out=out, resume=True, rounds=4)


def test_methods_and_seeds_are_compared_on_the_same_clients(tmp_path):
    given = wards()
    for _ in range(2):
        compared = fedblade.compare(
            clients=given, methods=["fedavg", "fedper"], seeds=[1, 2], out=tmp_path, **SMALL | {"rounds": 1}
        )
        assert len(compared) == 4
    swept = fedblade.sweep(clients=given, method="fedavg", grid={"lr": [0.1]}, seeds=[1], **SMALL | {"rounds": 1})
    assert len(swept.trials) == 1
    with pytest.raises(Misconfigured, match="clients and dataset were both given"):
        fedblade.compare(clients=given, dataset="digits", methods=["fedavg"])


def test_what_the_library_sets_is_told_once(caplog):
    fedblade.compare(clients=wards(), methods=["fedavg", "fedper"], seeds=[1], **SMALL | {"rounds": 1})
    told = [record.getMessage() for record in caplog.records]
    assert sum("is lowered from 10 to 4" in line for line in told) == 1
    assert sum("south and far west gave none, so a fifth" in line for line in told) == 1


def test_data_to_be_divided_say_how_they_were_divided(caplog):
    x, y = wards()["north"][:2]
    fedblade.run(dataset=(x, y, x, y), method="fedavg", num_clients=4, **SMALL)
    (told,) = [record.getMessage() for record in caplog.records if "divided among" in record.getMessage()]
    assert "the samples are divided among 4 clients by dirichlet with alpha = 0.1" in told
