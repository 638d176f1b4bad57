"""Loss functions for any training loop, and the terms that add them to a method."""

from fedblade.losses._adapted_cross_entropy import AdaptedCrossEntropy, adaptation, adapted_cross_entropy, class_shares
from fedblade.losses._alignment import FeatureAlignment, ProjectorAlignment, feature_alignment, projector_alignment
from fedblade.losses._anchor_matching import AnchorMatching, anchor_matching
from fedblade.losses._balanced_cross_entropy import BalancedCrossEntropy, balanced_cross_entropy
from fedblade.losses._calibrated_cross_entropy import CalibratedCrossEntropy, calibrated_cross_entropy
from fedblade.losses._covariance import DeCov, Singular, StructuredDeCov, decov, singular, structured_decov
from fedblade.losses._cross_entropy import CrossEntropy, cross_entropy
from fedblade.losses._decorr import Decorr
from fedblade.losses._distillation import (
    FeatureDistillation,
    KnowledgeDistillation,
    LogitDistillation,
    NotTrueDistillation,
    feature_distillation,
    knowledge_distillation,
    logit_distillation,
    not_true_distillation,
)
from fedblade.losses._feddecorr import FedDecorr, feddecorr
from fedblade.losses._generated import Generated, GeneratedMatch
from fedblade.losses._lddecorr import LDDecorr, lddecorr
from fedblade.losses._model_contrastive import ModelContrastive, model_contrastive
from fedblade.losses._prototype_distance import PrototypeDistance, prototype_distance
from fedblade.losses._proximal import Proximal
from fedblade.losses._regression import DotRegression, SphereRegression, dot_regression, sphere_regression
from fedblade.losses._relaxed_contrastive import RelaxedContrastive, relaxed_contrastive
from fedblade.losses._residual_cross_entropy import ResidualCrossEntropy
from fedblade.losses._restricted_cross_entropy import RestrictedCrossEntropy, restricted_cross_entropy
from fedblade.losses._uniformity import PredictionVariance, Uniformity, prediction_variance, uniformity

__all__ = [
    "AdaptedCrossEntropy",
    "AnchorMatching",
    "BalancedCrossEntropy",
    "CalibratedCrossEntropy",
    "CrossEntropy",
    "DeCov",
    "Decorr",
    "DotRegression",
    "FeatureAlignment",
    "FeatureDistillation",
    "FedDecorr",
    "Generated",
    "GeneratedMatch",
    "KnowledgeDistillation",
    "LDDecorr",
    "LogitDistillation",
    "ModelContrastive",
    "NotTrueDistillation",
    "PredictionVariance",
    "ProjectorAlignment",
    "PrototypeDistance",
    "Proximal",
    "RelaxedContrastive",
    "ResidualCrossEntropy",
    "RestrictedCrossEntropy",
    "Singular",
    "SphereRegression",
    "StructuredDeCov",
    "Uniformity",
    "adaptation",
    "adapted_cross_entropy",
    "anchor_matching",
    "balanced_cross_entropy",
    "calibrated_cross_entropy",
    "class_shares",
    "cross_entropy",
    "decov",
    "dot_regression",
    "feature_alignment",
    "feature_distillation",
    "feddecorr",
    "knowledge_distillation",
    "lddecorr",
    "logit_distillation",
    "model_contrastive",
    "not_true_distillation",
    "prediction_variance",
    "projector_alignment",
    "prototype_distance",
    "relaxed_contrastive",
    "restricted_cross_entropy",
    "singular",
    "sphere_regression",
    "structured_decov",
    "uniformity",
]
