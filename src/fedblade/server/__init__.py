"""Server steps: pure functions from (state, sums) to state."""

from fedblade.server._add import accumulate, one, scale_of
from fedblade.server._average import average, average_less_h, average_normalised, extrapolate, momentum, shorten
from fedblade.server._calibrate import calibrate_head, calibrate_sphere, class_gaussian, virtual_features
from fedblade.server._generator import FeatureGenerator
from fedblade.server._prototypes import (
    average_with_prototypes,
    move_prototypes,
    no_prototypes,
    num_prototypes,
    update_prototypes,
)
from fedblade.server._seed import run_seed
from fedblade.server._train_generator import GeneratorTraining, label_shares, no_moments

__all__ = [
    "FeatureGenerator",
    "GeneratorTraining",
    "accumulate",
    "average",
    "average_less_h",
    "average_normalised",
    "average_with_prototypes",
    "calibrate_head",
    "calibrate_sphere",
    "class_gaussian",
    "extrapolate",
    "label_shares",
    "momentum",
    "move_prototypes",
    "no_moments",
    "no_prototypes",
    "num_prototypes",
    "one",
    "run_seed",
    "scale_of",
    "shorten",
    "update_prototypes",
    "virtual_features",
]
