"""My texts are lists of token ids of different lengths."""

import numpy as np
import pytest

import fedblade
from support.five_modules import Words


def test_texts_as_token_ids(caplog):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    texts = [[int(label) + 1, *rng.integers(4, 20, rng.integers(1, 6)).tolist()] for label in y]
    settings = {"model": Words(), "method": "fedavg", "num_clients": 4, "clients_per_round": 2, "rounds": 2}
    with pytest.raises(fedblade.api.Misconfigured, match=r"x_train has rows of 2 to 6 values; .*Pad token ids"):
        fedblade.run(dataset=(texts, y, texts, y), **settings)

    rows = texts
    tokens = [[*row, *[0] * (6 - len(row))] for row in rows]
    result = fedblade.run(dataset=(tokens, y, tokens, y), **settings)
    assert (
        "as token ids; the model gets them as floating-point numbers, so an embedding needs tokens.long()"
        in caplog.text
    )
    assert len(result.model.predict(tokens[:5])) == 5
