"""The theory of FedDecorr, playable: why a client with few classes makes features that use few dimensions.

FedDecorr (Sec. 3.4, Theorem 1) explains dimensional collapse with a network that can be followed by hand: L linear
layers make the features, Π = W_L ⋯ W_1, a linear classifier W_{L+1} reads them, and all of them follow the gradient of
the cross-entropy in continuous time. The singular values σ_k of Π, which are the extent of the features in each of
their directions, then obey an equation of their own (Eqn. 4):

    dσ_k/dt = L · σ_k^{2 − 2/L} · √(σ_k^{2/L} + M) · uᵀ_{L+1,k} G v_k,      G = Σ_i w_i (y_i − γ_i) x_iᵀ.

v_k is the k-th right singular vector of Π, u_{L+1,k} the k-th left one of the classifier, γ_i the softmax output and
w_i the weight of a sample, 1/N in a plain mean. A direction grows only if G, the error that is left, pulls at it, and
in proportion to what it already has. A class that is rare has little weight in G: nothing pulls at the direction that
tells it from the others, and that direction stays as small as it began.

This script integrates the gradient flow itself, layer by layer and in double precision, takes the σ_k of the product,
and compares their measured slopes with the right-hand side above. Look at two columns of its table. What Eqn. 4 is off
by, relative to the slopes, is no more than the error of the integration. And the effective rank of Π, the exponential
of the entropy of σ_k / Σσ, falls as the labels become more uneven. The samples are the same in every row; only their
weights differ. Two things that are easily missed show as well. Depth alone leaves directions small, even with balanced
labels. And small is not for ever: the rarest classes are learned late, not never, so that the rows come closer the
longer the flow goes on (`--until 600`). A client, however, trains for a short time only.

What the equation needs, and what the paper's text leaves out:

- The loss here is the mean over samples. The paper's is the sum, so that its slopes carry a factor N, which only
  changes the unit of time.
- The layers must begin balanced, W_{l+1}ᵀ W_{l+1} = W_l W_lᵀ, and the classifier W_{L+1}ᵀ W_{L+1} = W_L W_Lᵀ + M P with
  P the projection onto the span of the features. The flow keeps these differences, whatever they are.
- The classifier has only C left singular vectors. With more features than classes the statement is therefore one about
  k ≤ C, P has rank C, and all further σ_k are and stay zero; the identity in place of P is impossible then.
- The σ_k must differ and not vanish, or singular vectors are not determined. The sign of u_{L+1,k} has to go with the
  one of the k-th left singular vector u_k of Π: u_{L+1,k} = W_{L+1} u_k / |W_{L+1} u_k|.
- Eqn. 5 writes G with the means of a class, Σ_c μ_c (e_c − γ̄_c) x̄_cᵀ. The gradient has the mean of the products
  γ_i x_iᵀ there instead of the product of the means, and the two agree only if outputs and inputs are uncorrelated
  within every class, for example if each class is a single point. The table has a column for the error of Eqn. 4 with
  Eqn. 5 as it is printed: `--spread 0` makes it as small as the other.

    python examples/feddecorr_theory.py
    python examples/feddecorr_theory.py --layers 3 --spread 0 --out singular_values.svg
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

Array = NDArray[np.float64]
Layers = list[Array]
"""W_1, …, W_{L+1}, each [settings, rows, columns]: every degree of imbalance is integrated at once."""


@dataclass(frozen=True)
class Problem:
    """Inputs [samples, dim] and one-hot labels [samples, classes], weighted in as many ways as there are settings."""

    inputs: Array
    labels: Array
    weights: Array

    @property
    def class_weights(self) -> Array:
        """μ_c, the weight of each class, [settings, classes]."""
        return self.weights @ self.labels


def make_problem(ratios: Sequence[float], spread: float = 0.5, seed: int = 0) -> Problem:
    """Ten points around the mean of each class. `ratios` say how many times the commonest class outweighs the rarest.

    The weights in between fall geometrically; a ratio of 1 is balanced.
    """
    draw, classes, dim, each = np.random.default_rng(seed), 10, 32, 10
    means = np.linalg.qr(draw.standard_normal((dim, classes)))[0].T * 2
    inputs = np.repeat(means, each, axis=0) + spread * draw.standard_normal((classes * each, dim)) / dim**0.5 * 2
    falling = np.array([ratio ** -(np.arange(classes) / (classes - 1)) for ratio in ratios])
    weights = np.repeat(falling / falling.sum(axis=1, keepdims=True), each, axis=1) / each
    return Problem(inputs, np.repeat(np.eye(classes), each, axis=0), weights)


def make_layers(problem: Problem, depth: int, margin: float, scale: float = 0.1) -> Layers:
    """Balanced layers, the same in every setting: M is `margin`, and Π has distinct σ_k from `scale` to 2·`scale`."""
    draw, classes, dim = np.random.default_rng(1), problem.labels.shape[1], problem.inputs.shape[1]
    sizes = [*[dim] * (depth + 1), classes]
    bases = [np.linalg.qr(draw.standard_normal((size, size)))[0][:, :classes] for size in sizes]
    root = np.linspace(2 * scale, scale, classes) ** (1 / depth)
    singular = [root] * depth + [np.sqrt(root**2 + margin)]
    layers = [(left * s) @ right.T for left, s, right in zip(bases[1:], singular, bases[:-1], strict=True)]
    return [np.repeat(layer[None], len(problem.weights), axis=0) for layer in layers]


def product(layers: Layers) -> Array:
    """W_l ⋯ W_1."""
    result = layers[0]
    for layer in layers[1:]:
        result = layer @ result
    return result


def outputs(layers: Layers, problem: Problem) -> Array:
    """The softmax outputs γ, [settings, samples, classes]."""
    logits = problem.inputs @ product(layers).mT
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def pull(layers: Layers, problem: Problem) -> Array:
    """G = Σ_i w_i (y_i − γ_i) x_iᵀ, the negative gradient of the loss with respect to W_{L+1} Π."""
    errors = problem.weights[:, :, None] * (problem.labels - outputs(layers, problem))
    return errors.mT @ problem.inputs


def printed_pull(layers: Layers, problem: Problem) -> Array:
    """Eqn. 5 as printed: Σ_c μ_c (e_c − γ̄_c) x̄_cᵀ."""
    of_class = problem.labels / problem.labels.sum(axis=0)
    mean_outputs, mean_inputs = of_class.T @ outputs(layers, problem), of_class.T @ problem.inputs
    errors = problem.class_weights[:, :, None] * (np.eye(problem.labels.shape[1]) - mean_outputs)
    return errors.mT @ mean_inputs


def slopes(layers: Layers, problem: Problem) -> Layers:
    """dW_l/dt = (W_{L+1} ⋯ W_{l+1})ᵀ G (W_{l−1} ⋯ W_1)ᵀ."""
    below = [np.broadcast_to(np.eye(problem.inputs.shape[1]), (len(problem.weights), *[problem.inputs.shape[1]] * 2))]
    for layer in layers[:-1]:
        below.append(layer @ below[-1])
    found, above = [], pull(layers, problem)
    for layer, under in zip(reversed(layers), reversed(below), strict=True):
        found.append(above @ under.mT)
        above = layer.mT @ above
    return found[::-1]


def step(layers: Layers, problem: Problem, size: float) -> Layers:
    """One step of the classical Runge-Kutta method, which errs by O(size⁵)."""

    def moved(slope: Layers, by: float) -> Layers:
        return [layer + by * change for layer, change in zip(layers, slope, strict=True)]

    first = slopes(layers, problem)
    second = slopes(moved(first, size / 2), problem)
    third = slopes(moved(second, size / 2), problem)
    fourth = slopes(moved(third, size), problem)
    mean = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(first, second, third, fourth, strict=True)]
    return moved(mean, size)


def singular_values(layers: Layers) -> Array:
    """σ_k of Π, the product of all layers but the classifier, for k ≤ C, descending, [settings, classes]."""
    return np.linalg.svd(product(layers[:-1]), compute_uv=False)[:, : layers[-1].shape[1]]


def predicted_slopes(layers: Layers, G: Array, margin: float) -> Array:
    """The right-hand side of Eqn. 4 for k ≤ C, with M = margin."""
    depth, classes = len(layers) - 1, layers[-1].shape[1]
    left, sigma, right = np.linalg.svd(product(layers[:-1]), full_matrices=False)
    left, sigma, right = left[..., :classes], sigma[..., :classes], right[..., :classes, :]
    read = layers[-1] @ left
    read /= np.linalg.norm(read, axis=1, keepdims=True)
    pulled = np.einsum("sck,scd,skd->sk", read, G, right)
    return depth * sigma ** (2 - 2 / depth) * np.sqrt(sigma ** (2 / depth) + margin) * pulled


def measured_slopes(layers: Layers, problem: Problem, size: float = 2e-3) -> Array:
    """dσ_k/dt from the singular values a little earlier and later on the same path; errs by O(size⁴)."""

    def after(steps: int) -> Array:
        moved = layers
        for _ in range(abs(steps)):
            moved = step(moved, problem, np.copysign(size, steps))
        return singular_values(moved)

    return (after(-2) - 8 * after(-1) + 8 * after(1) - after(2)) / (12 * size)


def imbalance_of_layers(layers: Layers, margin: float) -> Array:
    """Per setting, the largest entry of W_{l+1}ᵀ W_{l+1} − W_l W_lᵀ, less M P for the classifier; 0 in theory."""
    gaps = [above.mT @ above - below @ below.mT for below, above in pairwise(layers)]
    basis = np.linalg.svd(layers[-1], full_matrices=False)[2]
    gaps[-1] = gaps[-1] - margin * basis.mT @ basis
    return np.max([np.abs(gap).max(axis=(1, 2)) for gap in gaps], axis=0)


def effective_rank(sigma: Array) -> Array:
    """The exponential of the entropy of σ_k / Σσ: how many directions are in use, counted softly."""
    share = sigma / sigma.sum(axis=-1, keepdims=True)
    return np.exp(-(share * np.log(share)).sum(axis=-1))


@dataclass(frozen=True)
class Course:
    """What was found at each of `times`: singular values and errors, [times, settings, …]."""

    times: Array
    sigma: Array
    error: Array
    printed_error: Array
    unbalanced: Array


def follow(problem: Problem, depth: int, margin: float = 1.0, until: float = 60.0, size: float = 0.05) -> Course:
    """Integrate the flow and compare the slopes of the singular values with Eqn. 4 at every unit of time."""
    layers, found, pause = make_layers(problem, depth, margin), [], round(1 / size)
    for count in range(round(until / size) + 1):
        if count % pause == 0:
            measured, sigma = measured_slopes(layers, problem), singular_values(layers)
            whole = np.linalg.norm(measured, axis=1)
            errors = [
                np.linalg.norm(predicted_slopes(layers, G(layers, problem), margin) - measured, axis=1) / whole
                for G in (pull, printed_pull)
            ]
            found.append((count * size, sigma, *errors, imbalance_of_layers(layers, margin)))
        layers = step(layers, problem, size)
    return Course(*(np.array(part) for part in zip(*found, strict=True)))


def _name(ratio: float) -> str:
    return "balanced" if ratio == 1 else f"{ratio:g} : 1"


def table(course: Course, ratios: Sequence[float], depth: int) -> Table:
    """One row per degree of imbalance."""
    shown = Table(
        title=f"{depth} layers and a classifier, until t = {course.times[-1]:g}", box=box.SIMPLE_HEAD, pad_edge=False
    )
    chosen = [1, 5, 9]
    titles = ("labels", "Eqn. 4 off", "with Eqn. 5", "balance off", "rank", *(f"σ_{k}" for k in chosen))
    for title in titles:
        shown.add_column(title, justify="left" if title == "labels" else "right", no_wrap=True)
    ranks = effective_rank(course.sigma[-1])
    for row, ratio in enumerate(ratios):
        worst = (part[:, row].max() for part in (course.error, course.printed_error, course.unbalanced))
        values = (f"{course.sigma[-1, row, k - 1]:.2f}" for k in chosen)
        shown.add_row(_name(ratio), *(f"{value:.1e}" for value in worst), f"{ranks[row]:.2f}", *values)
    return shown


def drawing(course: Course, ratios: Sequence[float]) -> str:
    """An SVG with one panel per degree of imbalance: the singular values over time, on a log scale."""
    wide, high, gap = 220, 180, 30
    low, top = np.log10(course.sigma.min()), np.log10(course.sigma.max())
    across = course.times / course.times[-1] * wide
    parts = []
    for row, ratio in enumerate(ratios):
        left = gap + row * (wide + gap)
        parts.append(f'<text x="{left}" y="20">{_name(ratio)}</text>')
        parts.append(f'<rect x="{left}" y="{gap}" width="{wide}" height="{high}" fill="none" stroke="#888888"/>')
        down = gap + (top - np.log10(course.sigma[:, row])) / (top - low) * high
        for curve in down.T:
            points = " ".join(f"{left + x:.1f},{y:.1f}" for x, y in zip(across, curve, strict=True))
            parts.append(f'<polyline points="{points}" fill="none" stroke="#0072B2"/>')
    caption = f"singular values of the product of the layers, {10**low:.2g} to {10**top:.2g}, over time (log scale)"
    parts.append(f'<text x="{gap}" y="{high + gap + 22}">{caption}</text>')
    size = f'width="{gap + len(ratios) * (wide + gap)}" height="{high + 2 * gap + 10}"'
    style = 'font-family="sans-serif" font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Integrate, print the table, and draw if asked."""
    parser = argparse.ArgumentParser(description="Singular values of a deep linear network under label imbalance.")
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 3], help="layers below the classifier")
    parser.add_argument("--ratios", type=float, nargs="+", default=[1, 10, 100, 1000], help="commonest : rarest class")
    parser.add_argument("--spread", type=float, default=0.5, help="spread of a class; 0 makes it a point")
    parser.add_argument("--margin", type=float, default=1.0, help="M, the classifier's lead over the layers")
    parser.add_argument("--until", type=float, default=60.0, help="time at which to stop")
    parser.add_argument("--out", type=Path, help="write the last course as an SVG")
    given = parser.parse_args(arguments)
    problem = make_problem(given.ratios, spread=given.spread)
    for depth in given.layers:
        course = follow(problem, depth, given.margin, given.until)
        Console().print(table(course, given.ratios, depth))
    if given.out is not None:
        given.out.write_text(drawing(course, given.ratios), encoding="utf-8")


if __name__ == "__main__":
    main()
