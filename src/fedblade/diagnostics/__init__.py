"""Diagnostics of features: spectra, ranks, neural collapse and calibration, from sums that merge by addition."""

from fedblade.diagnostics._accuracy import accuracy, num_samples
from fedblade.diagnostics._alignment import alignment, feature_drift
from fedblade.diagnostics._angles import class_mean_angles, classifier_angles
from fedblade.diagnostics._calibration import calibration, expected_calibration_error
from fedblade.diagnostics._class_means import class_means
from fedblade.diagnostics._classes import classes
from fedblade.diagnostics._collapse import nc1, nc2
from fedblade.diagnostics._consistency import classifier_consistency, prototype_consistency
from fedblade.diagnostics._drift import drift
from fedblade.diagnostics._local_spectrum import local_spectrum, spectrum_ratio
from fedblade.diagnostics._moments import Moments
from fedblade.diagnostics._nc_error import nc_error
from fedblade.diagnostics._spectrum import effective_rank, erank_feature, erank_proj, spectrum
from fedblade.diagnostics._vectors import class_vectors

__all__ = [
    "Moments",
    "accuracy",
    "alignment",
    "calibration",
    "class_mean_angles",
    "class_means",
    "class_vectors",
    "classes",
    "classifier_angles",
    "classifier_consistency",
    "drift",
    "effective_rank",
    "erank_feature",
    "erank_proj",
    "expected_calibration_error",
    "feature_drift",
    "local_spectrum",
    "nc1",
    "nc2",
    "nc_error",
    "num_samples",
    "prototype_consistency",
    "spectrum",
    "spectrum_ratio",
]
