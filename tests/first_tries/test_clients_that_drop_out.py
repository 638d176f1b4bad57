"""A person wants to know what clients that do not answer, or do not finish, cost."""

import fedblade

SMALL = {
    "num_clients": 8, "clients_per_round": 4, "rounds": 6, "epochs": 2, "metrics": "accuracy", "model": "mlp",
    "device": "cpu",
}  # fmt: skip


def test_some_clients_never_answer():
    runs = [fedblade.run("quickstart", method=method, dropout=0.5, **SMALL) for method in ("fedavg", "fedprox")]
    answered = [[record["contributors"] for record in run.history] for run in runs]
    assert answered[0] == answered[1], "every method of a seed loses the same clients"
    assert 0 < sum(map(len, answered[0])) < 6 * 4
    assert all(answered[0])


def test_some_clients_finish_only_some_of_their_steps():
    whole, partial = (fedblade.run("quickstart", method="fednova", partial_work=w, **SMALL) for w in (0.0, 0.8))
    ratios = [[record["step_ratio"] for record in run.history] for run in (whole, partial)]
    assert max(ratios[1]) > max(ratios[0])
