"""The example integrates a true gradient flow, and what it says about Theorem 1 holds where it says so."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "feddecorr_theory.py"
RATIOS = (1, 10, 100, 1000)
MARGIN = 1.0


@pytest.fixture(scope="module")
def theory():
    spec = importlib.util.spec_from_file_location("feddecorr_theory", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def later(theory, problem, depth, time=8.0, size=0.05, margin=MARGIN):
    """The layers some time after a balanced start, where the classes begin to part."""
    layers = theory.make_layers(problem, depth, margin)
    for _ in range(round(time / size)):
        layers = theory.step(layers, problem, size)
    return layers


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_flow_follows_the_gradient_of_the_cross_entropy(theory, depth):
    problem = theory.make_problem(RATIOS)
    layers = later(theory, problem, depth, time=2.0)
    for setting, weights in enumerate(problem.weights):
        own = [torch.tensor(layer[setting], requires_grad=True) for layer in layers]
        hidden = torch.tensor(problem.inputs)
        for layer in own:
            hidden = hidden @ layer.T
        each = torch.nn.functional.cross_entropy(hidden, torch.tensor(problem.labels), reduction="none")
        (each * torch.tensor(weights)).sum().backward()
        for layer, slope in zip(own, theory.slopes(layers, problem), strict=True):
            np.testing.assert_allclose(slope[setting], -layer.grad.numpy(), rtol=0, atol=1e-14)


def test_weights_fall_from_the_commonest_class_to_the_rarest_by_the_ratio(theory):
    problem = theory.make_problem(RATIOS)
    np.testing.assert_allclose(problem.weights.sum(axis=1), 1)
    np.testing.assert_allclose(problem.class_weights[:, 0] / problem.class_weights[:, -1], RATIOS)
    assert (np.diff(problem.class_weights[1:], axis=1) < 0).all()


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("margin", [0.0, 1.0])
def test_layers_begin_balanced_with_the_singular_values_asked_for(theory, depth, margin):
    layers = theory.make_layers(theory.make_problem(RATIOS), depth, margin)
    assert theory.imbalance_of_layers(layers, margin).max() < 1e-14
    np.testing.assert_allclose(theory.singular_values(layers)[0], np.linspace(0.2, 0.1, 10), rtol=1e-12)


@pytest.mark.parametrize("depth", [2, 3])
def test_balance_is_kept_up_to_the_error_of_the_integration(theory, depth):
    """The method errs by O(size⁴) over a fixed time: half the step, a sixteenth of the drift."""
    problem = theory.make_problem(RATIOS)
    coarse, fine = (
        theory.imbalance_of_layers(later(theory, problem, depth, time=4.0, size=size), MARGIN) for size in (0.2, 0.1)
    )
    assert (fine < 1e-6).all()
    assert (coarse / fine > 10).all()
    assert (theory.imbalance_of_layers(later(theory, problem, depth, time=4.0), 2 * MARGIN) > 0.5).all()


@pytest.mark.parametrize("depth", [2, 3])
def test_singular_values_beyond_the_classes_stay_zero(theory, depth):
    product = theory.product(later(theory, theory.make_problem(RATIOS), depth)[:-1])
    sigma = np.linalg.svd(product, compute_uv=False)
    assert sigma.shape == (4, 32)
    assert sigma[:, 9].min() > 0.05
    assert sigma[:, 10:].max() < 1e-13


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("margin", [0.0, 1.0])
def test_eqn_4_is_the_slope_of_the_singular_values(theory, depth, margin):
    """What is left is the error of the difference quotient, O(size⁴), rounding and what balance has been lost.

    The quotient with a tenth of the step errs by 1/10,000, rounding by about 1e-16·σ/size. Lost balance is felt in the
    first order; here by less than itself, for which a factor of ten leaves room.
    """
    problem = theory.make_problem(RATIOS)
    layers = later(theory, problem, depth, time=4.0, size=0.0125, margin=margin)
    predicted = theory.predicted_slopes(layers, theory.pull(layers, problem), margin)
    coarse, fine = (np.abs(theory.measured_slopes(layers, problem, size) - predicted).max() for size in (0.04, 0.02))
    assert coarse / fine > 10
    near = theory.measured_slopes(layers, problem, 2e-3)
    lost = theory.imbalance_of_layers(layers, margin).max()
    np.testing.assert_allclose(predicted, near, rtol=0, atol=2 * fine / 10**4 + 1e-12 + 10 * lost)
    assert np.abs(predicted).max() > 0.01


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_eqn_4_depends_on_the_constant(theory, depth):
    """An M that is a tenth off changes it by far more than it errs."""
    problem = theory.make_problem(RATIOS)
    layers = later(theory, problem, depth)
    predicted = theory.predicted_slopes(layers, theory.pull(layers, problem), MARGIN)
    other = theory.predicted_slopes(layers, theory.pull(layers, problem), 1.1 * MARGIN)
    assert np.linalg.norm(other - predicted) > 1e-3 * np.linalg.norm(predicted)


def test_eqn_5_is_exact_only_where_a_class_is_a_point(theory):
    for spread, holds in ((0.0, True), (0.5, False)):
        problem = theory.make_problem(RATIOS, spread=spread)
        layers = later(theory, problem, 2)
        true, printed = theory.pull(layers, problem), theory.printed_pull(layers, problem)
        gap = np.linalg.norm(true - printed, axis=(1, 2)) / np.linalg.norm(true, axis=(1, 2))
        assert (gap < 1e-12).all() if holds else (gap > 0.01).all()


def test_without_balance_eqn_4_does_not_hold(theory):
    problem = theory.make_problem(RATIOS)
    layers = theory.make_layers(problem, 2, MARGIN)
    layers[0], layers[1] = 2 * layers[0], layers[1] / 2
    predicted = theory.predicted_slopes(layers, theory.pull(layers, problem), MARGIN)
    measured = theory.measured_slopes(layers, problem)
    assert np.linalg.norm(predicted - measured) > 0.1 * np.linalg.norm(measured)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("depth", [2, 3])
def test_stronger_imbalance_leaves_more_singular_values_small(theory, depth, seed):
    sigma = theory.singular_values(later(theory, theory.make_problem(RATIOS, seed=seed), depth, time=20.0, size=0.1))
    assert (np.diff(theory.effective_rank(sigma)) < 0).all()
    small = (sigma < 0.5).sum(axis=1)
    assert (np.diff(small) >= 0).all()
    assert small[-1] >= small[0] + 2


def test_effective_rank_counts_equal_values(theory):
    sigma = np.array([[2.0, 2.0, 2.0, 1e-300], [3.0, 1e-300, 1e-300, 1e-300]])
    np.testing.assert_allclose(theory.effective_rank(sigma), [3, 1])


def test_the_script_prints_the_errors_and_draws_if_asked(theory, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "course.svg"
    theory.main(["--layers", "2", "--ratios", "1", "100", "--until", "5", "--out", str(out)])
    printed = capsys.readouterr().out
    balanced, uneven = (re.search(rf"{name} .*", printed).group().split() for name in ("balanced", "100 : 1"))
    errors = [float(cell) for row in (balanced, uneven) for cell in row if re.fullmatch(r"\d\.\de-\d+", cell)]
    assert len(errors) == 6
    assert max(errors[0], errors[3]) < 1e-6 < min(errors[1], errors[4])
    drawn = out.read_text()
    assert drawn.count("<polyline") == 20
    assert "nan" not in drawn
    theory.main(["--layers", "2", "--ratios", "1", "--until", "1"])
    assert list(tmp_path.iterdir()) == [out]
