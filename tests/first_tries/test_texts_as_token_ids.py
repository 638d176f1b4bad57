"""My texts are lists of token ids of different lengths."""

import numpy as np
import pytest
from torch import nn

import fedblade
from support.five_modules import Words


class BagOfWords(nn.Module):
    """An embedding that gets the inputs as they come."""

    def __init__(self):
        super().__init__()
        self.embedding, self.answer = nn.EmbeddingBag(20, 8), nn.Linear(8, 3)

    def forward(self, tokens):
        return self.answer(self.embedding(tokens))


def test_texts_as_token_ids(caplog):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    texts = [[int(label) + 1, *rng.integers(4, 20, rng.integers(1, 6)).tolist()] for label in y]
    settings = {"model": Words(), "method": "fedavg", "num_clients": 4, "clients_per_round": 2, "rounds": 2}
    with pytest.raises(fedblade.api.Misconfigured, match=r"x_train has rows of 2 to 6 values; .*Pad token ids"):
        fedblade.run(dataset=(texts, y, texts, y), **settings)

    with pytest.raises(fedblade.api.Misconfigured, match=r"let the model call tokens.long\(\) before its embedding"):
        fedblade.run(dataset=(np.array([t[:2] for t in texts]), y) * 2, **settings | {"model": BagOfWords()})

    rows = texts
    tokens = [[*row, *[0] * (6 - len(row))] for row in rows]
    result = fedblade.run(dataset=(tokens, y, tokens, y), **settings)
    assert (
        "as token ids; the model gets them as floating-point numbers, so an embedding needs tokens.long()"
        in caplog.text
    )
    assert len(result.model.predict(tokens[:5])) == 5
