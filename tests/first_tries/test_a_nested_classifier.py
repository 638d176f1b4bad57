"""My classifier is an attribute of an attribute, and the method keeps it fixed."""

import torch

import fedblade
from support.five_modules import Nested, arrays


def test_a_nested_classifier():
    x, y, x_test, y_test = arrays("nested")
    result = fedblade.run(dataset=(x, y, x_test, y_test), model=Nested(), method="dotreg", num_clients=10, rounds=2)

    net = Nested()
    net.load_state_dict(result.model.module().state_dict())
    inputs = torch.from_numpy(x_test)
    torch.testing.assert_close(net(inputs), result.model(inputs))
