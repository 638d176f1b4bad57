"""A person lets large clients take part more often."""

from collections import Counter

import fedblade

SMALL = {"num_clients": 8, "clients_per_round": 2, "epochs": 1, "metrics": "accuracy", "model": "mlp", "device": "cpu"}


def test_large_clients_take_part_more_often():
    result = fedblade.run("quickstart", method="fedavg", participation="by_size", rounds=40, **SMALL)
    times = Counter(client for record in result.history for client in record["clients"])
    by_size = sorted(result.clients, key=lambda record: record["train_samples"])
    small, large = (sum(times[record["client"]] for record in half) for half in (by_size[:4], by_size[4:]))
    assert large > 1.5 * small
