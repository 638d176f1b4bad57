"""A person names the clients that take part: always the same, or groups in turn."""

import fedblade

SMALL = {"num_clients": 8, "rounds": 4, "epochs": 1, "metrics": "accuracy", "model": "mlp", "device": "cpu"}


def cohorts(**keys):
    result = fedblade.run("quickstart", method="fedavg", clients_per_round=3, participation="fixed", **keys, **SMALL)
    return [record["clients"] for record in result.history]


def test_the_same_clients_in_every_round():
    assert cohorts(cohorts=[0, 3, 5]) == [[0, 3, 5]] * 4


def test_groups_that_take_turns():
    assert cohorts(cohorts=[[0, 1], [2, 3, 4]]) == [[0, 1], [2, 3, 4], [0, 1], [2, 3, 4]]
