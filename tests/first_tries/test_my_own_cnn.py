"""Train my own CNN with BatchNorm by a method with a fixed classifier, and train it further in my own loop."""

import torch
from torch.nn.functional import cross_entropy

import fedblade
from support.five_modules import Cnn, arrays


def test_my_own_cnn():
    torch.manual_seed(0)
    x, y, x_test, y_test = arrays("cnn")
    result = fedblade.run(dataset=(x, y, x_test, y_test), model=Cnn(), method="fedetf", num_clients=10, rounds=3)

    net = result.model.module().train()
    assert type(net) is Cnn
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    before = cross_entropy(net(inputs), labels)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        loss = cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step()
    assert loss < 0.9 * before
    # The result still has the model of the run.
    assert not torch.equal(net.conv.weight, result.model.module().conv.weight)
