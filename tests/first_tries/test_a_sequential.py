"""My model is an nn.Sequential, and the method scales its classifier."""

import torch

import fedblade
from support.five_modules import arrays, sequential


def test_a_sequential():
    x, y, x_test, y_test = arrays("sequential")
    result = fedblade.run(
        dataset=(x, y, x_test, y_test), model=sequential(), method="fedgela", num_clients=10, rounds=2
    )

    net, inputs = result.model.module(), torch.from_numpy(x_test)
    torch.testing.assert_close(net(inputs), result.model(inputs))
    exported = torch.export.export(net, (inputs,)).module()
    torch.testing.assert_close(exported(inputs), result.model(inputs))
