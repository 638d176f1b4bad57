"""I have few data and ask for few clients. I have not read that ten of them train in each round."""

import fedblade
from support.five_modules import Mlp, arrays


def test_fewer_clients_than_the_default_cohort(caplog):
    result = fedblade.run(dataset=arrays("mlp"), model=Mlp(), method="fedavg", num_clients=4, rounds=1)
    assert result.history[0]["clients"] == [0, 1, 2, 3]
    told = [record.getMessage() for record in caplog.records]
    assert any("clients_per_round is lowered from 10 to 4" in line for line in told)
    assert any("divided among 4 clients by dirichlet with alpha = 0.1" in line for line in told)
