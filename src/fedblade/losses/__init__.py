"""Loss functions for anyone's training loop, and the terms that plug them into a method."""

from fedblade.losses._balanced_cross_entropy import BalancedCrossEntropy, balanced_cross_entropy
from fedblade.losses._cross_entropy import CrossEntropy, cross_entropy
from fedblade.losses._decorr import Decorr
from fedblade.losses._dot_regression import dot_regression
from fedblade.losses._feature_alignment import FeatureAlignment, feature_alignment
from fedblade.losses._feature_distillation import feature_distillation
from fedblade.losses._feddecorr import FedDecorr, feddecorr
from fedblade.losses._lddecorr import LDDecorr, lddecorr
from fedblade.losses._projector_alignment import ProjectorAlignment, projector_alignment
from fedblade.losses._proximal import Proximal

__all__ = [
    "BalancedCrossEntropy",
    "CrossEntropy",
    "Decorr",
    "FeatureAlignment",
    "FedDecorr",
    "LDDecorr",
    "ProjectorAlignment",
    "Proximal",
    "balanced_cross_entropy",
    "cross_entropy",
    "dot_regression",
    "feature_alignment",
    "feature_distillation",
    "feddecorr",
    "lddecorr",
    "projector_alignment",
]
