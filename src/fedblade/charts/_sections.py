"""Which metric writes which number, and the section of the page that shows the number."""

# The descriptions of numbers know neither: metrics need torch, which charts must not load, and run folders store no
# section. A test compares this table with the metrics.
_SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "accuracy": {"accuracy": ("test_accuracy", "test_loss")},
    "collapse": {
        "erank_feature": ("erank_feature", "erank_feature_correlation"),
        "spectrum": ("significant_values", "zero_variance_share"),
        "spectrum_ratio": ("spectrum_ratio",),
        "erank_proj": ("erank_proj", "erank_proj_correlation"),
    },
    "geometry": {
        "nc1": (
            "nc1_feature_pinv", "nc1_feature_ratio", "nc1_feature_unit", "nc1_proj_pinv", "nc1_proj_ratio",
            "nc1_proj_unit",
        ),
        "nc2": (
            "nc2_feature_equiangle", "nc2_feature_equinorm", "nc2_feature_fro", "nc2_feature_normalised",
            "nc2_proj_equiangle", "nc2_proj_equinorm", "nc2_proj_fro", "nc2_proj_normalised",
        ),
        "nc_error": ("nc_error", "nc_error_centred"),
    },
    "drift": {
        "drift": ("update_cosine", "drift_norm", "drift_relative"),
        "prototype_consistency": ("prototype_consistency",),
        "classifier_consistency": ("classifier_consistency",),
        "alignment": (
            "alignment_erased", "alignment_gap_erased", "alignment_observed", "alignment_unobserved",
            "alignment_gap_observed", "alignment_gap_unobserved",
        ),
        "classifier_angles": (
            "angle_existing_local", "angle_missing_local", "angle_existing_global", "angle_missing_global",
        ),
        "class_mean_angles": ("class_mean_angle_existing", "class_mean_angle_missing"),
        "feature_drift": (
            "feature_distance_observed", "feature_distance_unobserved", "feature_angle_observed",
            "feature_angle_unobserved",
        ),
    },
    "served": {"classes": ("worst_class_accuracy", "worst_decile_accuracy", "client_accuracy_mean")},
    "calibration": {"calibration": ("ece",)},
    # The page and the figures leave them out: they only qualify other numbers.
    "": {"class_mean_angles": ("class_mean_angle_all",), "spectrum_ratio": ("spectrum_ratio_floored",)},
}  # fmt: skip
"""The numbers `[section][metric]`, in the order of the page."""


def section_numbers(section: str) -> list[str]:
    """The numbers that a section of the page shows, in the order of the page."""
    return [number for numbers in _SECTIONS[section].values() for number in numbers]


def metric_by_number() -> dict[str, str]:
    """The metric that writes a number, by the name of the number."""
    return {
        number: metric
        for by_metric in _SECTIONS.values()
        for metric, numbers in by_metric.items()
        for number in numbers
    }
