"""Do the features collapse? Spectra and effective rank."""

from collections.abc import Sequence
from dataclasses import replace

from fedblade.report._charts import Figure
from fedblade.report._html import details, grid, paragraph, section
from fedblade.report._measures import Measure, latest_values, measure_figures
from fedblade.report._spectra import dimensions, spectra
from fedblade.results import NAMED, Group, listing

METRICS = ("spectrum", "erank_feature", "local_spectrum", "spectrum_ratio")

_INTRO = (
    "A network turns every sample into a list of numbers, its features, and then decides by them. When the features "
    "vary along many independent directions, classes have room to differ. When nearly all variation lies along a few "
    "directions, the features have collapsed (dimensional collapse), and classes get in each other's way. Training on "
    "clients that see only some of the labels can push models there (Shi et al., ICLR 2023); these pictures tell."
)
_EFFECTIVE = (
    "The number of directions in use, counted by strength: 1 if everything varies along one line, the full number of "
    "features if all directions are equally strong. Higher means less collapse."
)
_MEASURES = (
    Measure("erank_feature", "Effective rank of the features", "effective rank", _EFFECTIVE, ".1f"),
    Measure(
        "significant_values",
        "Directions with noticeable variance",
        "directions",
        "How many directions have a variance (an eigenvalue of the covariance) above e⁻², about 0.14. Unlike the "
        "effective rank this depends on the scale of the features, so compare its course more than its height.",
        ".1f",
    ),
    Measure(
        "spectrum_ratio",
        "Client's spectrum against the average's, R",
        "R",
        "The mean logarithm of one client's eigenvalues (the variances of the spectrum) over those of the averaged "
        "model. Above 0, averaging lost variance that the client's model had; 0 means equal spectra; below 0, the "
        "averaged model varies more than the client's.",
    ),
    Measure(
        "erank_proj",
        "Effective rank after the projection",
        "effective rank",
        "The same for the features as the classifier receives them, after the projection of methods that have one. A "
        "projection may have fewer dimensions, so set methods with one only against each other.",
        ".1f",
    ),
)
_MORE = (
    Measure(
        "erank_feature_correlation",
        "Effective rank, correlation",
        "effective rank",
        "The effective rank when every feature is first brought to the same variance, so that a few large features do "
        "not hide the many small ones. Higher means less collapse.",
        ".1f",
    ),
    Measure(
        "erank_proj_correlation",
        "Effective rank, projected, correlation",
        "effective rank",
        "The same for the features as the classifier receives them, after the projection of methods that have one.",
        ".1f",
    ),
    Measure(
        "zero_variance_share",
        "Features that never change",
        "share",
        "The share of features that are the same for every test sample; such features carry nothing.",
        bounds=(0.0, 1.0),
    ),
)


def collapse(groups: Sequence[Group]) -> str:
    """The section, or nothing where no run has measured any of it."""
    drawn = spectra(groups)
    main = [_in_dimensions(groups, each) for each in measure_figures(groups, _MEASURES)]
    more = measure_figures(groups, _MORE)
    if not drawn and not main and not more:
        return ""
    folded = details("More about the spectrum", grid(more)) if more else ""
    return section("collapse", "Do the features collapse?", paragraph(_INTRO, "intro"), drawn, grid(main), folded)


def _in_dimensions(groups: Sequence[Group], picture: Figure) -> Figure:
    """The effective rank set against the number of features, where that is known."""
    total = dimensions(groups)
    found = latest_values(groups, "erank_feature")
    if picture.name != "erank-feature" or total is None or len({at for _, at, _ in found}) != 1 or len(found) > NAMED:
        return picture
    told = listing([f"{label} {value:.1f}" for label, _, value in found])
    seen = f"After round {found[0][1]:g}, of {total} directions each, the equivalent of these many are in use: {told}."
    return replace(picture, seen=seen)
