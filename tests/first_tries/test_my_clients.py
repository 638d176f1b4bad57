"""My data are divided already: two hospitals, two pairs of arrays. I have no test samples for one of them."""

import numpy as np
import pytest

import fedblade
from fedblade.api import Misconfigured
from support.five_modules import Mlp, arrays


def hospitals():
    x, y, x_test, y_test = arrays("mlp")
    return {"north": (x[:150], y[:150]), "south": (x[150:], y[150:], x_test, y_test)}


def test_two_hospitals(caplog):
    result = fedblade.run(clients=hospitals(), model=Mlp(), method="fedavg", rounds=2)
    assert [client["name"] for client in result.clients] == ["north", "south"]
    told = " ".join(record.getMessage() for record in caplog.records)
    assert "clients_per_round is lowered from 10 to 2" in told
    assert "north gave none, so a fifth of the client's samples is held out" in told
    assert len(result.model.predict(arrays("mlp")[2])) == 60


def test_the_first_mistakes():
    given = hospitals()
    x, y = given["north"]
    for clients, keys, message in (
        (given, {"alpha": 0.5}, "partition.alpha is for dividing one data set"),
        ({**given, "north": (x.astype(np.float64), y)}, {}, "client 'north' .* and client 'south'"),
        ([given["north"], given["south"]], {}, "expected a dict from the name of each client"),
    ):
        with pytest.raises(Misconfigured, match=message):
            fedblade.run(clients=clients, model=Mlp(), method="fedavg", rounds=1, **keys)
    for wrong in (given, {"x": x, "y": y}):
        with pytest.raises(Misconfigured, match=r"dataset is a dict in which .*data of clients as clients={'north'"):
            fedblade.run(dataset=wrong, model=Mlp(), method="fedavg", rounds=1)
