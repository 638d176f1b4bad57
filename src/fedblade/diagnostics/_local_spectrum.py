"""Local dimensional collapse: the spectrum of one client's trained model, and its ratio to the global spectrum."""

from collections.abc import Mapping

from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.fields import Field
from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import Sum
from fedblade.core.tree import Tree
from fedblade.diagnostics._moments import Moments, moments_pass
from fedblade.diagnostics._spectrum import eigenvalues

RATIO_FLOOR = 1e-12
"""Eigenvalues below this are only rounding; their logarithms would dominate the mean."""


def spectrum_ratio(local_spectrum: Tensor, global_spectrum: Tensor) -> float:
    """Mean log ratio of two spectra [dim] (FedDecorr, Eq. 1).

    R = (1/dim)·Σ_k log(λ_k local/λ_k global), both spectra in descending order. Above 0 the features of the aggregated
    model vary less than those of the client's model. Deviation: smaller eigenvalues are raised to 1e-12.
    """
    _check(local_spectrum, global_spectrum)
    return float((_logs(local_spectrum) - _logs(global_spectrum)).mean())


def num_floored(local_spectrum: Tensor, global_spectrum: Tensor) -> int:
    """How many eigenvalues of both spectra `spectrum_ratio` raises to its floor."""
    _check(local_spectrum, global_spectrum)
    return sum(int((spectrum < RATIO_FLOOR).sum()) for spectrum in (local_spectrum, global_spectrum))


_RATIO_FIELDS = (
    Field(
        "spectrum_ratio",
        "Client's spectrum against the average's, R",
        "R",
        "The mean logarithm of one client's eigenvalues (the variances of the spectrum) over those of the averaged "
        "model. Above 0, averaging lost variance that the client's model had; 0 means equal spectra; below 0, the "
        "averaged model varies more than the client's.",
        short="R",
        number_format=".2f",
    ),
    Field(
        "spectrum_ratio_floored",
        "Eigenvalues at the floor of R",
        "eigenvalues",
        "How many eigenvalues of both spectra are so small that R takes 1e-12 in their place. The more there are, the "
        "less R says.",
        short="eigenvalues at the floor of R",
        main=False,
    ),
)


@metrics.register("local_spectrum", paper="FedDecorr, Figures 3 to 6")
def local_spectrum() -> Metric:
    """Eigenvalues of the covariance of the test samples' features in the trained model of a client, descending.

    The client is the one with the lowest number in the cohort.
    """
    return Metric((), _finish_spectrum, (_MOMENTS,), clients="first")


@metrics.register("spectrum_ratio", paper="FedDecorr, Eq. 1")
def spectrum_ratio_metric() -> Metric:
    """Mean log ratio of `local_spectrum` to the spectrum of the measured model; above 0 if averaging collapsed it.

    `spectrum_ratio_floored` counts the eigenvalues of both spectra that are raised to 1e-12. See
    `diagnostics.spectrum_ratio`.
    """
    return Metric((_PASS,), _finish_ratio, (_MOMENTS,), clients="first", fields=_RATIO_FIELDS)


_PASS = moments_pass("feature")
_MOMENTS = Sum("local_moments", lambda view: view.passes[_PASS.name], bound=1e12, measured=(_PASS,))


def _spectrum(tree: Tree) -> Tensor:
    return eigenvalues(Moments.from_tree(tree), "covariance")


def _finish_spectrum(totals: Mapping[str, Tree]) -> MetricResult:
    return {"local_spectrum": _spectrum(totals[_MOMENTS.name]).tolist()}


def _finish_ratio(totals: Mapping[str, Tree]) -> MetricResult:
    spectra = _spectrum(totals[_MOMENTS.name]), _spectrum(totals[_PASS.name])
    return {"spectrum_ratio": spectrum_ratio(*spectra), "spectrum_ratio_floored": float(num_floored(*spectra))}


def _logs(spectrum: Tensor) -> Tensor:
    return spectrum.double().clamp(min=RATIO_FLOOR).sort(descending=True).values.log()


def _check(local_spectrum: Tensor, global_spectrum: Tensor) -> None:
    if local_spectrum.dim() != 1 or local_spectrum.shape != global_spectrum.shape or not len(local_spectrum):
        raise Misconfigured(
            f"spectra of shapes {tuple(local_spectrum.shape)} and {tuple(global_spectrum.shape)} given; two of the "
            f"same length [dim] expected. Compute both with diagnostics.spectrum from features of the same dimension."
        )
