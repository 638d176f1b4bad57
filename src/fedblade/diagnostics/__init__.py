"""Diagnostics of features: spectra, effective rank and neural collapse, from sums that merge by addition."""

from fedblade.diagnostics._accuracy import accuracy
from fedblade.diagnostics._collapse import nc1, nc2
from fedblade.diagnostics._moments import Moments
from fedblade.diagnostics._spectrum import effective_rank, erank_feature, erank_proj, spectrum

__all__ = ["Moments", "accuracy", "effective_rank", "erank_feature", "erank_proj", "nc1", "nc2", "spectrum"]
