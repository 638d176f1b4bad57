"""The chain of equalities between methods, all in one place and by name.

A knob at its neutral value, a term of weight zero or a federation in which a part cannot matter gives the simpler
method bit for bit, because no draw and no operation is added.
"""

from functools import cache

import pytest

from support.small_federation import BATCH_NORM, CNN, assert_close, assert_same_bits, images, train

# A method at its neutral knobs, and the method it then is.
SAME = {
    "fedprox": ("fedprox", {"mu": 0.0}, "fedavg"),
    "fedavgm": ("fedavgm", {"rho": 0.0}, "fedavg"),
    "fedavgm-ema": ("fedavgm", {"rho": 0.0, "variant": "ema"}, "fedavg"),
    "fedrs": ("fedrs", {"alpha_rs": 1.0}, "fedavg"),
    "moon": ("moon", {"mu": 0.0}, "fedavg"),
    "fedntd": ("fedntd", {"beta_ntd": 0.0}, "fedavg"),
    "fedproto": ("fedproto", {"lambda_proto": 0.0}, "fedavg"),
    "fedfm": ("fedfm", {"lambda_fm": 0.0}, "fedavg"),
    "fedgen": ("fedgen", {"alpha_0": 0.0, "beta_0": 0.0}, "fedavg"),
    "feddecorr": ("feddecorr", {"lambda_decorr": 0.0}, "fedavg"),
    "decov": ("decov", {"lambda_decorr": 0.0}, "fedavg"),
    "stdecov": ("stdecov", {"lambda_decorr": 0.0}, "fedavg"),
    "lsingular": ("lsingular", {"lambda_decorr": 0.0}, "fedavg"),
    "fedblade": ("fedblade", {"lambda_decorr": 0.0, "gamma_pba": 0.0}, "fedetf"),
    "fedblade-without-pba": (
        "fedblade",
        {"lambda_decorr": 1e-4, "pba.use_pa": False, "pba.use_fa": False},
        ("fedetf+lddecorr", {"method.lddecorr.lambda_decorr": 1e-4}),
    ),
    "feddr_plus": ("feddr_plus", {"beta": 1.0}, "dotreg"),
    "feddr_plus-is-mixing": ("feddr_plus", {"beta": 0.9}, ("dotreg+fd", {"method.fd.beta": 0.9})),
}


SETTINGS = {"plain": {}, "batch_norm": BATCH_NORM, "partial": {"clients_per_round": 2}}


@cache
def run_of(method, setting="plain"):
    """A run that several tests compare theirs with."""
    return train(method, **SETTINGS[setting])


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("case", SAME)
def test_a_neutral_knob_gives_the_simpler_method_bit_for_bit(case, setting):
    name, knobs, simpler = SAME[case]
    ours = train(name, **knobs, **SETTINGS[setting])
    theirs = (
        run_of(simpler, setting) if isinstance(simpler, str) else train(simpler[0], **simpler[1], **SETTINGS[setting])
    )
    assert_same_bits(ours.state.params, theirs.state.params)
    assert_same_bits(ours.state.buffers, theirs.state.buffers)


@pytest.mark.parametrize(
    ("base", "reg"),
    [
        ("fedavg", "prox"),
        ("fedbabu", "kd"),
        ("spherefed", "ntd"),
        ("fedetf", "ld"),
        ("fedgela", "moon"),
        ("dotreg", "fd"),
    ],
)
def test_mixing_with_a_share_of_one_is_the_base(base, reg):
    """With a smaller share it is not: `test_mixing` has that for every pair."""
    assert_same_bits(train(f"{base}+{reg}", **{f"method.{reg}.beta": 1.0}).state.params, run_of(base).state.params)


def test_fedsol_without_perturbation_is_fedavg():
    assert_same_bits(train("fedsol", rho=0.0).state.params, run_of("fedavg").state.params)


def test_fednova_of_equal_step_counts_is_fedavg():
    equal = {"partition": "iid", "num_clients": 5, "clients_per_round": 5}
    assert_close(train("fednova", **equal).state.params, train("fedavg", **equal).state.params, 1e-12)


def test_the_first_round_of_scaffold_is_fedavg():
    assert_same_bits(train("scaffold", rounds=1).state.params, train("fedavg", rounds=1).state.params)


def test_fedbn_without_normalisation_is_fedavg():
    assert_same_bits(train("fedbn").state.params, run_of("fedavg").state.params)


def test_fedgela_of_equal_class_counts_is_fedge():
    same = {"partition": "iid", "num_clients": 1, "clients_per_round": 1, "dim": 16}
    assert_same_bits(train("fedgela", **same).state.params, train("fedge", **same).state.params)


@pytest.mark.parametrize("method", ["fedavg", "fedetf", "moon", "fedgela", "ditto", "fedrod", "fedgen", "fedblade"])
def test_every_method_of_a_seed_meets_the_same_cohorts_and_starts_from_the_same_body(method):
    ours, theirs = run_of(method, "partial"), run_of("scaffold", "partial")
    assert [row["clients"] for row in ours.history] == [row["clients"] for row in theirs.history]
    bodies = [{n: v for n, v in ran.setup.start.params.items() if n.startswith("body.")} for ran in (ours, theirs)]
    assert_same_bits(*bodies)


@pytest.mark.parametrize("method", ["fedgen", "ditto", "ccvr", "fedblade"])
def test_a_run_repeated_is_the_same_run(method):
    knobs = {"lambda_decorr": 1e-4} if method == "fedblade" else {}
    first, second = (train(method, images(), **CNN, **knobs) for _ in range(2))
    assert first.history == second.history
    assert_same_bits(first.state.flat(), second.state.flat())
