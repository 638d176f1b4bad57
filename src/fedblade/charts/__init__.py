"""Charts as plain values: what the page and the figures for papers draw from groups of runs. Imports no torch."""

from fedblade.charts._accuracy import accuracy_chart, loss_chart, time_chart, traffic_chart
from fedblade.charts._arrays import class_matrix, row_words
from fedblade.charts._calibration import reliability_chart
from fedblade.charts._classes import ClassMaps, class_accuracies, class_chart, confusion_maps, cosine_maps
from fedblade.charts._clients import client_chart
from fedblade.charts._crowd import MOST_DRAWN, crowd_name, with_crowd, without_many_bands
from fedblade.charts._measures import (
    find_field,
    latest_values,
    other_charts,
    other_fields,
    section_answer,
    section_charts,
)
from fedblade.charts._model import PERCENT, Axis, Chart, Line, LinePanel, Matrix, MatrixPanel, Panel, Series
from fedblade.charts._sections import metric_by_number
from fedblade.charts._series import SMALLEST_EIGENVALUE, final_value, group_series, sweep_series
from fedblade.charts._spectra import feature_count, spectra
from fedblade.charts._splits import Split, distinct_splits, partition_text

__all__ = [
    "MOST_DRAWN",
    "PERCENT",
    "SMALLEST_EIGENVALUE",
    "Axis",
    "Chart",
    "ClassMaps",
    "Line",
    "LinePanel",
    "Matrix",
    "MatrixPanel",
    "Panel",
    "Series",
    "Split",
    "accuracy_chart",
    "class_accuracies",
    "class_chart",
    "class_matrix",
    "client_chart",
    "confusion_maps",
    "cosine_maps",
    "crowd_name",
    "distinct_splits",
    "feature_count",
    "final_value",
    "find_field",
    "group_series",
    "latest_values",
    "loss_chart",
    "metric_by_number",
    "other_charts",
    "other_fields",
    "partition_text",
    "reliability_chart",
    "row_words",
    "section_answer",
    "section_charts",
    "spectra",
    "sweep_series",
    "time_chart",
    "traffic_chart",
    "with_crowd",
    "without_many_bands",
]
