"""Train my own MLP, and take it home."""

import torch

import fedblade
from support.five_modules import Mlp, arrays


def test_my_own_mlp():
    x, y, x_test, y_test = arrays("mlp")
    result = fedblade.run(dataset=(x, y, x_test, y_test), model=Mlp(), method="fedavg", num_clients=10, rounds=3)

    net = Mlp()
    net.load_state_dict(result.model.module().state_dict())  # my own class, my own names
    mine = net(torch.from_numpy(x_test)).argmax(1)
    assert torch.equal(mine, result.model.predict(x_test))
    assert 100 * (mine.numpy() == y_test).mean() == result.summary["final_accuracy"]
