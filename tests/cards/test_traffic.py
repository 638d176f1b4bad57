"""What exchanges cost: the model travels only to those who look at their samples with it."""

from dataclasses import replace

import numpy as np
import pytest

from fedblade.cards._traffic import measure_traffic, prepare_one_client
from fedblade.core.method import Exchange
from fedblade.core.registry import Entry
from fedblade.core.sums import DataPass, Sum
from fedblade.data import Dataset, Part
from fedblade.methods import Composition
from fedblade.methods.fedavg import fedavg
from fedblade.payloads import class_features
from fedblade.runs import execute, load_config

CLASSES, CLIENTS, COHORT, WIDTH = 3, 4, 2, 4
KEYS = {
    "dataset": "object", "partition": "iid", "model": "mlp", "hidden": [8], "dim": 6, "num_clients": CLIENTS,
    "clients_per_round": COHORT, "rounds": 3, "epochs": 1, "device": "cpu",
}  # fmt: skip


def history(method, **changes):
    """The rounds of a small run on three classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(120) % CLASSES
    x = (rng.normal(size=(120, 5)) + labels[:, None]).astype(np.float32)
    data = Dataset("made", Part(x[:90], labels[:90]), Part(x[90:], labels[90:]), CLASSES)
    config, _ = load_config(None, KEYS | {"method": method if isinstance(method, str) else "fedavg"} | changes)
    if not isinstance(method, str):
        config = replace(config, method=Composition("value", Entry("value", lambda: method), ()), method_knobs={})
    return execute(config, dataset=data).history


def more(method, other, key):
    return [a[key] - b[key] for a, b in zip(method, other, strict=True)]


def test_fedgela_pays_for_its_shared_scales_and_nothing_else():
    """C shares and a count go up from everyone before the first round, C numbers down to the cohort in each."""
    plain = history("fedgela", phi="identity")
    for phi in ("exp", "sqrt"):
        shared = history("fedgela", phi=phi)
        assert more(shared, plain, "bytes_up") == [CLIENTS * (CLASSES + 1) * WIDTH, 0, 0]
        assert more(shared, plain, "bytes_down") == [COHORT * CLASSES * WIDTH] * 3


def test_label_counts_of_fedgen_need_no_model():
    first, *others = history("fedgen", **{"method.hid": 8, "method.nz": 4, "method.n_it": 1})
    assert {first["bytes_down"]} == {row["bytes_down"] for row in others}
    assert first["bytes_up"] - others[0]["bytes_up"] == CLIENTS * CLASSES * WIDTH


COUNTS = Sum("counts", lambda view: {"n": view.counts}, bound=1e6)
FEATURES = Sum("features", lambda view: view.passes["seen"], bound=1e6, passes=(DataPass("seen", class_features),))


@pytest.mark.parametrize("when", ["before_run", "after_round", "after_run"])
@pytest.mark.parametrize("sums", [(COUNTS,), (COUNTS, FEATURES)], ids=["counts", "features"])
def test_a_model_is_charged_where_a_client_passes_over_its_samples(when, sums):
    plain = history(fedavg())
    exchange = Exchange(when, sums, lambda state, _: state)
    found = more(history(replace(fedavg(), exchanges=(exchange,))), plain, "bytes_down")
    model = CLIENTS * plain[0]["bytes_down"] // COHORT if FEATURES in sums else 0
    times = {"before_run": [1, 0, 0], "after_round": [1, 1, 1], "after_run": [0, 0, 1]}[when]
    assert found == [count * model for count in times]


@pytest.mark.parametrize(("method", "model"), [("fedgen", False), ("ccvr", True)])
def test_the_card_charges_as_the_run_does(method, model):
    traffic, _ = measure_traffic(prepare_one_client(method))
    (exchange,) = traffic.exchanges
    assert exchange.bytes_down == (traffic.down_model if model else 0)
