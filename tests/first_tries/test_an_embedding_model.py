"""My model has an embedding and a transformer, and reads token ids."""

import torch

import fedblade
from support.five_modules import Words, arrays


def test_an_embedding_model():
    tokens, y, test_tokens, y_test = arrays("words")
    result = fedblade.run(
        dataset=(tokens, y, test_tokens, y_test), model=Words(), method="fedavg", num_clients=10, rounds=3
    )

    net = Words()
    net.load_state_dict(result.model.module().state_dict())
    net.eval()
    assert torch.equal(net(torch.from_numpy(test_tokens)).argmax(1), result.model.predict(test_tokens))
