"""Do clients pull in different directions? Drift, consistency, alignment and angles."""

from collections.abc import Sequence

from fedblade.report._html import details, grid, paragraph, section
from fedblade.report._measures import Measure, measure_figures, pair_figures
from fedblade.results import Group

METRICS = (
    "drift",
    "prototype_consistency",
    "classifier_consistency",
    "classifier_angles",
    "alignment",
    "feature_drift",
)

_COSINE = (-1.0, 1.0)
_DEGREES = (0.0, 180.0)
_INTRO = (
    "In each round the chosen clients start from the same model, train on their own labels, and the server averages "
    "what comes back. If every client moves somewhere else, the average keeps little of what each one learned, and "
    "classes a client does not have may be forgotten while it trains. Agreement is told by cosines: 1 for the same "
    "direction, 0 for directions that have nothing in common, −1 for opposite ones."
)
_SINGLE = (
    Measure(
        "update_cosine",
        "Agreement of the clients' updates",
        "cosine",
        "The mean cosine between the updates of two clients of a round: 1 if all pull the same way, 0 if their updates "
        "have nothing in common, below 0 if they undo each other.",
        bounds=_COSINE,
        of_model=False,
    ),
    Measure(
        "drift_norm",
        "How far clients move",
        "distance",
        "The mean length of a client's update, from the model it received to the one it returns. Far moves are no "
        "fault as such; far moves that do not agree are.",
        ".3g",
        of_model=False,
    ),
    Measure(
        "prototype_consistency",
        "Agreement on what a class looks like",
        "cosine",
        "The mean cosine between two clients' mean features of the same class: 1 if all clients see a class alike.",
        bounds=_COSINE,
        of_model=False,
    ),
    Measure(
        "classifier_consistency",
        "Agreement of the clients' classifiers",
        "cosine",
        "The mean cosine between two clients' classifiers after local training; a classifier that is fixed gives 1.",
        bounds=_COSINE,
        of_model=False,
    ),
    Measure(
        "alignment_erased",
        "Alignment, classes a client has lost",
        "cosine",
        "How well what the classifier receives (features, projected where the method has a projection) still points at "
        "its vector of a class that was taken from the client.",
        bounds=_COSINE,
        of_model=False,
    ),
    Measure(
        "alignment_gap_erased",
        "Change of alignment, classes a client has lost",
        "cosine",
        "How much local training without these classes changed that alignment against the model the client received. "
        "Below 0, it got worse.",
        of_model=False,
    ),
)

_MORE = (
    Measure(
        "drift_relative",
        "How far clients move, relative",
        "share of the model",
        "The mean length of a client's update as a share of the length of the model it received.",
        ".3g",
        of_model=False,
    ),
)


def _two(
    key: str, ends: tuple[str, str], title: str, y_label: str, reading: str, bounds: tuple[float, float] | None = None
) -> tuple[Measure, Measure]:
    """A measure of the classes a client has, and the same of those it lacks."""
    has, lacks = (key.format(end) for end in ends)
    style = ".1f" if y_label == "degrees" else ".2f"
    second = "The same for classes of which the client has no sample, on the same scale."
    of_model = key.endswith("_global")
    return (
        Measure(has, f"{title}: classes a client has", y_label, reading, style, bounds, of_model),
        Measure(lacks, f"{title}: classes it lacks", y_label, second, style, bounds, of_model),
    )


_SEEN, _HELD = ("observed", "unobserved"), ("existing", "missing")
_PAIRS = (
    _two(
        "alignment_{}", _SEEN, "Alignment", "cosine",
        "The mean cosine between what the classifier receives of a test sample and the classifier's vector of its "
        "class, in the clients' models after local training: of the features, or, with methods that have a projection, "
        "of the projected ones. 1 means that they point exactly where the classifier looks.",
        bounds=_COSINE,
    ),
    _two(
        "alignment_gap_{}", _SEEN, "Change of alignment", "cosine",
        "How much local training changed that alignment against the model the client received. Below 0, it got worse.",
    ),
    _two(
        "angle_{}_local", _HELD, "Angles of local classifiers", "degrees",
        "The mean angle between the classifier's vectors of two classes, after local training. Small angles mean that "
        "the classifier hardly tells the classes apart.",
        bounds=_DEGREES,
    ),
)  # fmt: skip
_MORE_PAIRS = (
    _two(
        "angle_{}_global", _HELD, "Angles of the averaged classifier", "degrees",
        "The mean angle between the classifier's vectors of two classes in the averaged model, for the classes each "
        "client of the round has.",
        bounds=_DEGREES,
    ),
    _two(
        "class_mean_angle_{}", _HELD, "Angles of class means", "degrees",
        "The mean angle between the mean features of two classes; wider is better separated.",
        bounds=_DEGREES,
    ),
    _two(
        "feature_distance_{}", _SEEN, "Movement of features", "distance",
        "How far the features of a test sample move while the client trains, from the received model to the returned.",
    ),
    _two(
        "feature_angle_{}", _SEEN, "Turning of features", "degrees",
        "The angle by which the features of a test sample turn during local training.",
        bounds=_DEGREES,
    ),
)  # fmt: skip


def drift(groups: Sequence[Group]) -> str:
    """The section, or nothing where no run has measured any of it."""
    main = measure_figures(groups, _SINGLE) + [each for pair in _PAIRS for each in pair_figures(groups, pair)]
    more = [each for pair in _MORE_PAIRS for each in pair_figures(groups, pair)] + measure_figures(groups, _MORE)
    if not main and not more:
        return ""
    folded = details("More about clients' models", grid(more)) if more else ""
    return section("drift", "Do clients pull in different directions?", paragraph(_INTRO, "intro"), grid(main), folded)
