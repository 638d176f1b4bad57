"""TF32 only where a run asks for it, and never after it."""

import pytest
import torch

import fedblade
from fedblade.runs import RunListener
from fedblade.runs._device import float32_products

PARTS = {
    "matmul": torch.backends.cuda.matmul,
    "conv": torch.backends.cudnn.conv,
    "rnn": torch.backends.cudnn.rnn,
}
SMALL = {
    "dataset": "digits", "model": "mlp", "rounds": 2, "num_clients": 4, "clients_per_round": 2, "device": "cpu",
}  # fmt: skip


def settings():
    return {name: part.fp32_precision for name, part in PARTS.items()}


@pytest.fixture(autouse=True, params=["as_it_is", "tf32", "ieee"])
def before(request):
    """What the caller has set, which must be there afterwards."""
    was = settings()
    if request.param != "as_it_is":
        for part in PARTS.values():
            part.fp32_precision = request.param
    found = settings()
    yield found
    assert settings() == found
    for name, part in PARTS.items():
        part.fp32_precision = was[name]


class Looks(RunListener):
    def __init__(self, fails=False):
        self.seen, self.fails = [], fails

    def on_client(self, round_, client):
        self.seen.append(settings())
        if self.fails:
            raise RuntimeError("stop")


@pytest.mark.parametrize(("tf32", "expected"), [(False, "ieee"), (True, "tf32")])
def test_products_are_what_the_run_asks_for(before, tf32, expected):
    with float32_products(tf32=tf32):
        assert settings() == dict.fromkeys(PARTS, expected)
    assert settings() == before


def test_the_setting_is_put_back_after_an_error(before):
    with pytest.raises(ValueError, match="inside"), float32_products(tf32=True):
        raise ValueError("inside")
    assert settings() == before


@pytest.mark.parametrize(("changes", "expected"), [({}, "ieee"), ({"tf32": False}, "ieee"), ({"tf32": True}, "tf32")])
@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_a_run_trains_with_its_setting(before, engine, changes, expected):
    listener = Looks()
    fedblade.run(engine=engine, listener=listener, **SMALL, **changes)
    assert listener.seen == [dict.fromkeys(PARTS, expected)] * 4
    assert settings() == before


def test_a_run_that_fails_puts_the_setting_back(before):
    with pytest.raises(RuntimeError, match="stop"):
        fedblade.run(listener=Looks(fails=True), tf32=True, **SMALL)
    assert settings() == before
