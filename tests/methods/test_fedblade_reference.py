"""Two rounds of FedBlade against the plain-PyTorch version in `plain_torch`, which shares no code with the library.

The d × d determinant of the plain version is ill-conditioned at ε = 1e-4, and small models amplify: the
settings keep one of the two mild, so that both versions stay well below the tolerance.
"""

import pytest
import torch

import support.plain_torch as plain
from fedblade.heads import _etf, class_vectors
from support.small_federation import BATCH_NORM, DIM, assert_close, train

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}
KNOBS = {"gamma_pba": 1.0, "tau": 0.1, "dim": DIM}
MILD = {"lambda_decorr": 0.0005, "eps": 1e-4, "last_batch": "drop"}
STRONG = {"lambda_decorr": 0.005, "eps": 1e-2, "last_batch": "keep"}


def blended(old, new, momentum):
    """Prototypes after a round from those before and the plain version's, class by class."""
    mean = new[0].clone()
    for c in range(len(mean) if old is not None else 0):
        if old[1][c]:
            mean[c] = momentum * old[0][c] + (1 - momentum) * new[0][c]
    return mean, new[1]


def reference(setup, norm, knobs, rounds, warmup=0, momentum=0.0):
    """Reads initial weights, frame and batches from the run, and nothing else."""
    samples, start = setup.problem.samples, setup.start
    state = (start.params, start.buffers, None)
    for round_ in range(rounds):
        clients = []
        for client in setup.cohorts[round_]:
            task = setup.planner.task(round_, int(client))
            clients.append((task.indices, [b.indices for b in task.phases[0]], task.counts))
        strength = knobs["lambda_decorr"] * min(round_ + 1, warmup + 1) / (warmup + 1)
        before = state[2]
        params, buffers, after = plain.fedblade_round(
            LAYERS[norm],
            state,
            clients,
            samples.inputs,
            samples.labels,
            class_vectors(start.fixed["etf"]),
            (0.05, 0.9, 1e-3),
            {**KNOBS, **knobs, "lambda_decorr": strength},
        )
        state = (params, buffers, blended(before, after, momentum))
    return state


def run(setting, **overrides):
    knobs = {
        "lambda_decorr": setting["lambda_decorr"],
        "decorr.eps": setting["eps"],
        "local.last_batch": setting["last_batch"],
    }
    return train("fedblade", **knobs, **overrides)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("cohort", [4, 2])
@pytest.mark.parametrize("setting", [MILD, STRONG], ids=["mild", "strong"])
def test_two_rounds_agree_with_the_plain_version(norm, cohort, setting):
    ran = run(setting, clients_per_round=cohort, **{"model.norm": norm})
    params, buffers, (mean, has) = reference(ran.setup, norm, setting, 2)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    assert_close({"mean": ran.state.extra["prototypes"]["mean"]}, {"mean": mean}, 1e-9)
    assert torch.equal(ran.state.extra["prototypes"]["has"], has)
    assert ran.history[-1]["scale"] == pytest.approx(params["scale"].item(), abs=1e-9)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_class_vectors_along_the_axes_agree_with_the_plain_version(engine, monkeypatch):
    """The form of more than 1,000 classes, here with few."""
    monkeypatch.setattr(_etf, "MOST_DRAWN", 2)
    ran = run(STRONG, engine=engine)
    assert ran.setup.start.fixed["etf"].dim() == 1
    params, _, (mean, _) = reference(ran.setup, "none", STRONG, 2)
    assert_close(ran.state.params, params, 1e-9)
    assert_close({"mean": ran.state.extra["prototypes"]["mean"]}, {"mean": mean}, 1e-9)


@pytest.mark.parametrize("change", [{"tau": 0.1001}, {"gamma_pba": 1.0001}, {"lambda_decorr": 0.0050001}])
def test_the_comparison_notices_a_changed_knob(change):
    ran = run(STRONG, **BATCH_NORM)
    params, *_ = reference(ran.setup, "batch", {**STRONG, **change}, 2)
    with pytest.raises(AssertionError, match="body"):
        assert_close(ran.state.params, params, 1e-9)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("forms", [{"warmup": 3}, {"momentum": 0.7}, {"warmup": 1, "momentum": 0.5}], ids=str)
def test_warm_up_and_momentum_agree_with_the_plain_version(engine, forms):
    """Three rounds of two clients: classes are seen again, and classes are absent from a cohort."""
    keys = {"warmup": "decorr.warmup", "momentum": "proto.momentum"}
    knobs = {keys[name]: value for name, value in forms.items()}
    ran = run(STRONG, engine=engine, rounds=3, clients_per_round=2, **knobs)
    params, _, (mean, has) = reference(ran.setup, "none", STRONG, 3, **forms)
    assert_close(ran.state.params, params, 1e-9)
    assert_close({"mean": ran.state.extra["prototypes"]["mean"]}, {"mean": mean}, 1e-9)
    assert torch.equal(ran.state.extra["prototypes"]["has"], has)
    for other in ({**forms, "warmup": 2}, {**forms, "momentum": 0.6}):
        with pytest.raises(AssertionError, match="body"):
            assert_close(ran.state.params, reference(ran.setup, "none", STRONG, 3, **other)[0], 1e-9)
