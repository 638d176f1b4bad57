"""Three tiny rounds per method in float64, compared with stored numbers.

A difference means that the library computes something else than before. If that is meant, record the new numbers with

    FEDBLADE_RECORD_GOLDEN=1 python -m pytest tests/golden

and say in CHANGELOG.md, under "Results change", what changed and why.
"""

import json
import os
from pathlib import Path

import pytest

from fedblade.core.registry import methods, regularisers
from support.small_federation import BATCH_NORM, CNN, images, train

STORED = Path(__file__).parent / "golden.json"
RECORD = os.environ.get("FEDBLADE_RECORD_GOLDEN") == "1"
TOLERANCE = 1e-6

# Strong decorrelation makes small models chaotic, so it is weak or balanced here, and no batch is short.
STEADY = {"local.last_batch": "drop", "optimizer.lr": 0.02}
MILD = {"lambda_decorr": 1e-4}
METHODS = {
    "fedavg": ("fedavg", {}),
    "fedprox": ("fedprox", {"mu": 0.1}),
    "feddecorr": ("feddecorr", {"lambda_decorr": 0.01}),
    "fedprox+feddecorr": ("fedprox+feddecorr", {"method.feddecorr.lambda_decorr": 0.01}),
    "fedetf": ("fedetf", {}),
    "fedetf-without-projector": ("fedetf", {"projector": False}),
    "fedetf+lddecorr": ("fedetf+lddecorr", MILD),
    "fedblade": ("fedblade", MILD),
    "fedblade-balanced": ("fedblade", {"decorr.balance": 0.1}),
    "fedblade-without-decorrelation": ("fedblade", {"lambda_decorr": 0.0}),
    "fedblade-without-pa": ("fedblade", {**MILD, "pba.use_pa": False}),
    "fedblade-without-fa": ("fedblade", {**MILD, "pba.use_fa": False}),
    "fedblade-without-distribution": ("fedblade", {**MILD, "pba.distribution_factor": False}),
    "fedavgm": ("fedavgm", {}),
    "fedavgm-ema": ("fedavgm", {"variant": "ema", "rho": 0.5}),
    "scaffold": ("scaffold", {}),
    "fednova": ("fednova", {}),
    "feddyn": ("feddyn", {}),
    "fedexp": ("fedexp", {}),
    "fedsol": ("fedsol", {}),
    "moon": ("moon", {}),
    "moon-mlp": ("moon", {"mlp": True, "mlp_width": 12}),
    "fedntd": ("fedntd", {}),
    "fedlc": ("fedlc", {}),
    "fedrs": ("fedrs", {}),
    "fedgen": ("fedgen", {"hid": 8, "nz": 3, "n_it": 3}),
    "fedrcl": ("fedrcl", {"tau": 0.5}),
    "fedproto": ("fedproto", {}),
    "fedproto-unshared": ("fedproto", {"share_weights": False}),
    "fedfm": ("fedfm", {}),
    "feduv": ("feduv", {}),
    "decov": ("decov", {"lambda_decorr": 0.01}),
    "stdecov": ("stdecov", {"lambda_decorr": 0.01, "groups": 4}),
    "lsingular": ("lsingular", {"lambda_decorr": 0.01}),
    "fedbabu": ("fedbabu", {}),
    "spherefed": ("spherefed", {"calibrate": True}),
    "dotreg": ("dotreg", {}),
    "feddr_plus": ("feddr_plus", {}),
    "fedge": ("fedge", {"E_W": 9.0}),
    "fedgela": ("fedgela", {"E_W": 9.0}),
    "fedgela-exp": ("fedgela", {"E_W": 9.0, "phi": "exp"}),
    "fedla": ("fedla", {}),
    "fedbn": ("fedbn", {}),
    "fedper": ("fedper", {}),
    "fedrep": ("fedrep", {}),
    "perfedavg": ("perfedavg", {"beta_out": 0.02}),
    "ditto": ("ditto", {}),
    "fedrod": ("fedrod", {}),
    "fednh": ("fednh", {}),
    "ccvr": ("ccvr", {"method.epochs": 3}),
    "local_ce": ("local_ce", {}),
    "local_ce_etf": ("local_ce_etf", {}),
    "local_dr": ("local_dr", {}),
    "fedavg+prox": ("fedavg+prox", {}),
    "fedbabu+kd": ("fedbabu+kd", {}),
    "spherefed+ntd": ("spherefed+ntd", {}),
    "fedetf+ld": ("fedetf+ld", {}),
    "fedgela+moon": ("fedgela+moon", {"E_W": 9.0}),
    "dotreg+fd": ("dotreg+fd", {}),
    "fedetf-tuned": ("fedetf", {"protocol": "pers_etf", "ft.iterations": 2}),
    "fedgela-tuned": ("fedgela-ft", {"E_W": 9.0}),
}
SETTINGS = {
    "mlp": {},
    "mlp-batch-norm": {**BATCH_NORM, "clients_per_round": 2},
}
CASES = {f"{m} {s}": (m, s) for m in METHODS for s in SETTINGS} | {"fedblade cnn": ("fedblade", "cnn")}


def measure(method, setting):
    """A handful of numbers that any change of the computation moves."""
    name, knobs = METHODS[method]
    data = images() if setting == "cnn" else None
    overrides = {**CNN, "dataset.augment": "crop_flip"} if setting == "cnn" else SETTINGS[setting]
    ran = train(name, data, rounds=3, **STEADY, **knobs, **overrides)
    numbers = {f"test_loss {row['round']}": row["test_loss"] for row in ran.history}
    numbers |= {f"{key} 3": v for key, v in ran.history[-1].items() if key.startswith("loss_") or key == "bytes_up"}
    for group in ("body", "head", "projector", "scale"):
        leaves = [v for n, v in ran.state.params.items() if n.partition(".")[0] == group]
        if leaves:
            numbers[f"norm {group}"] = sum(v.square().sum().item() for v in leaves) ** 0.5
            numbers[f"sum {group}"] = sum(v.sum().item() for v in leaves)
    if ran.state.buffers:
        numbers["norm buffers"] = sum(v.double().square().sum().item() for v in ran.state.buffers.values()) ** 0.5
    if personal := [row["accuracy"] for row in ran.driver.clients if "accuracy" in row]:
        numbers["accuracy of own models"] = sum(personal)
    if "prototypes" in ran.state.extra:
        numbers["norm prototypes"] = ran.state.extra["prototypes"]["mean"].norm().item()
    return numbers


def stored():
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.is_file() else {}


def differences(found, expected):
    names = sorted(found.keys() | expected.keys())
    pairs = {name: (found.get(name), expected.get(name)) for name in names}
    return [f"{n}: {e} was stored, {f} came out" for n, (f, e) in pairs.items() if not close(f, e)]


def close(found, expected):
    return None not in (found, expected) and abs(found - expected) <= TOLERANCE * max(1.0, abs(expected))


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_what_they_were(case):
    found = measure(*CASES[case])
    if RECORD:
        STORED.write_text(json.dumps({**stored(), case: found}, indent=1) + "\n", encoding="utf-8")
        pytest.skip("recorded, not compared")
    wrong = differences(found, stored().get(case, {}))
    assert not wrong, (
        f"{case}: "
        + "; ".join(wrong)
        + ". If this is meant, run FEDBLADE_RECORD_GOLDEN=1 python -m pytest tests/golden "
        'and add a "Results change" entry to CHANGELOG.md that says what changed and why.'
    )


def test_nothing_is_stored_that_is_not_tested():
    assert stored().keys() == CASES.keys()


def test_every_method_has_numbers():
    assert {name.partition("+")[0].removesuffix("-ft") for name, _ in METHODS.values()} == set(methods.names())
    added = {part for name, _ in METHODS.values() for part in name.split("+")[1:]}
    assert added >= set(regularisers.names()) - {"decov", "stdecov", "lsingular"}


def test_a_small_change_is_noticed():
    expected = {"a": 2.0, "b": 1.0}
    assert differences({"a": 2.0, "b": 1.0}, expected) == []
    assert len(differences({"a": 2.0 + 5e-6, "b": 1.0}, expected)) == 1
    assert len(differences({"a": 2.0}, expected)) == 1
    assert len(differences({"a": 2.0, "b": 1.0, "c": 0.0}, expected)) == 1
