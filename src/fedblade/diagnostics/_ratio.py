"""How much averaging collapsed a spectrum: the ratio of local to global eigenvalues."""

from torch import Tensor

from fedblade.core.errors import Misconfigured

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


def _logs(spectrum: Tensor) -> Tensor:
    return spectrum.double().clamp(min=RATIO_FLOOR).sort(descending=True).values.log()


def _check(local_spectrum: Tensor, global_spectrum: Tensor) -> None:
    if local_spectrum.dim() != 1 or local_spectrum.shape != global_spectrum.shape or not len(local_spectrum):
        raise Misconfigured(
            f"spectra of shapes {tuple(local_spectrum.shape)} and {tuple(global_spectrum.shape)} given; two of the "
            f"same length [dim] expected. Compute both with diagnostics.spectrum from features of the same dimension."
        )
