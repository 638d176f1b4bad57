"""The sections that explain the results: collapse, geometry, drift, who is served, labels and cost."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fedblade import charts
from fedblade.core.words import listing
from fedblade.report._blocks import (
    Block,
    Cell,
    Details,
    Frames,
    Paragraph,
    Section,
    TableBlock,
    columns,
    map_panels,
    small_pictures,
    wide_picture,
)
from fedblade.report._selection import Selection
from fedblade.results import MISSING, MOST_NAMED, Group, duration, finite_number, personal_models_sentence, size

_MOST_CLASSES = 30
"""The most classes that get a table with a column for every class."""
_LOCAL_TITLE = "One client's model against the averaged one"


@dataclass(frozen=True)
class Question:
    """A section that only runs with certain metrics have; `metrics` are those that fill it."""

    name: str
    heading: str
    metrics: tuple[str, ...]
    intro: str
    blocks: Callable[[Selection], list[Block]]

    def section(self, shown: Selection) -> Section | None:
        """The section, or None where no run has measured any of it."""
        blocks = self.blocks(shown)
        return Section(self.name, self.heading, [Paragraph(self.intro, "intro"), *blocks]) if blocks else None


def other_section(shown: Selection) -> list[Section]:
    """The numbers that runs describe and no other section shows, such as those of a user's own metric."""
    blocks = small_pictures(shown.of(charts.other_charts(shown.groups)))
    return [Section("other", "What else was measured?", blocks)] if blocks else []


def cost(shown: Selection) -> Section:
    """Timings and bytes in a table, and accuracy against both."""
    headings = [
        "method", "engine", "seconds per round", "training seconds, all runs", "up / down per round",
        "up / down, all runs",
    ]  # fmt: skip
    groups = shown.groups
    rows = [_cost_row(shown.place(index), group) for index, group in enumerate(groups)]
    note = "Seconds cover training and aggregation, not evaluation. Bytes are those of all clients of a round together."
    pictures = small_pictures(shown.of([charts.traffic_chart(groups), charts.time_chart(groups)]))
    listed = TableBlock("Cost", columns(headings, ("method", "engine")), rows, tall=not shown.many)
    return Section("cost", "What does it cost?", [*pictures, listed, Paragraph(note)])


def _collapse(shown: Selection) -> list[Block]:
    return [*_spectra(shown), *_section_pictures(shown, "collapse", "More about the spectrum")]


def _spectra(shown: Selection) -> list[Block]:
    # The band of many groups belongs to the last round, so that there is no choice of round.
    spectra = charts.spectra(shown.groups, 1) if shown.many else charts.spectra(shown.groups)
    if spectra is None:
        return []
    blocks: list[Block] = [wide_picture(chart, tall=340) for chart in shown.of([spectra.every_method])]
    if against_local := shown.of(spectra.against_local):
        local = [*small_pictures(against_local), Paragraph(spectra.local_reading)]
        many = len(against_local) > MOST_NAMED
        blocks += [Details(_LOCAL_TITLE, local)] if many else [Paragraph(_LOCAL_TITLE, "figure-title lead"), *local]
    return [Paragraph(spectra.every_method.title, "figure-title"), Frames(spectra.rounds, blocks)]


def _with_feature_count(groups: Sequence[Group], chart: charts.Chart) -> charts.Chart:
    """The chart; that of the effective rank also says how many features there are, where all groups have the same."""
    if chart.name != "erank-feature":
        return chart
    total, latest = charts.feature_count(groups), charts.latest_values(groups, "erank_feature")
    if total is None or len({at for _, at, _ in latest}) != 1 or len(latest) > MOST_NAMED:
        return chart
    ranks = listing([f"{label} {value:.1f}" for label, _, value in latest])
    seen = f"After round {latest[0][1]:g} the features use the equivalent of this many directions, of {total}: {ranks}."
    return replace(chart, seen=seen)


def _geometry(shown: Selection) -> list[Block]:
    blocks = _section_pictures(shown, "geometry", "Other variants of these measures")
    cosines = charts.cosine_maps(shown.drawn_groups)
    if cosines is not None:
        title = Paragraph("Which classes look alike", "figure-title lead")
        blocks += [title, *map_panels(cosines, shown.drawn_groups)]
    return blocks


def _by_class_and_client(shown: Selection) -> list[Block]:
    """Accuracy by class and by client, calibration, and confusions."""
    groups = shown.groups
    pictures = [
        charts.class_chart(groups),
        charts.client_chart(groups),
        *charts.section_charts(groups, "served"),
        charts.reliability_chart(groups),
        *charts.section_charts(groups, "calibration"),
    ]
    confusion = charts.confusion_maps(shown.drawn_groups)
    maps = [] if confusion is None else map_panels(confusion, shown.drawn_groups)
    tables = _class_table(shown.drawn_groups)
    return [*small_pictures(shown.of(pictures)), *tables, *_details("Which classes are taken for which", maps)]


def _class_table(groups: Sequence[Group]) -> list[Block]:
    names, accuracies = charts.class_accuracies(groups)
    if not 0 < len(names) <= _MOST_CLASSES:
        return []
    rows = [
        [Cell(group.label, group=index), *(Cell(MISSING if value is None else f"{value:.1f}") for value in values)]
        for index, (group, values) in enumerate(zip(groups, accuracies, strict=True))
        if values is not None
    ]
    sentence = personal_models_sentence(groups)
    listed = TableBlock("Accuracy of each class at the last round", columns(["method", *names], ("method",)), rows)
    return [Details("Accuracy of each class, %", [listed, *([Paragraph(sentence)] if sentence else [])])]


def _section_pictures(shown: Selection, section: str, more: str) -> list[Block]:
    """The main charts of a section, then all others, folded under the title `more`."""
    groups = shown.groups
    main = [_with_feature_count(groups, chart) for chart in charts.section_charts(groups, section)]
    others = small_pictures(shown.of(charts.section_charts(groups, section, main=False)))
    return [*small_pictures(shown.of(main)), *_details(more, others)]


def _details(summary: str, blocks: Sequence[Block]) -> list[Block]:
    return [Details(summary, blocks)] if blocks else []


def _cost_row(place: int | None, group: Group) -> list[Cell]:
    engines = dict.fromkeys(run.part("engine") for run in group.runs)
    up, down = (_mean([run.per_round(key) for run in group.counted]) for key in ("bytes_up", "bytes_down"))
    all_up, all_down = (_total(group, key) for key in ("bytes_up", "bytes_down"))
    return [
        Cell(group.label, group=place),
        Cell(", ".join(engines)),
        Cell(duration(_mean([run.seconds_per_round for run in group.counted]))),
        Cell(duration(_total(group, "seconds"))),
        Cell(f"{size(up)} / {size(down)}", order=up),
        Cell(f"{size(all_up)} / {size(all_down)}", order=all_up),
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _total(group: Group, key: str) -> float | None:
    known = [value for run in group.runs if (value := finite_number(run.summary.get(key))) is not None]
    return sum(known) if known else None


QUESTIONS = (
    Question(
        "collapse",
        "Do the features collapse?",
        ("spectrum", "erank_feature", "local_spectrum", "spectrum_ratio"),
        "A network turns every sample into a list of numbers, its features, and then decides by them. When the "
        "features vary along many independent directions, classes have room to differ. When nearly all variation lies "
        "along a few directions, the features have collapsed (dimensional collapse), and classes get in each other's "
        "way. Training on clients that see only some of the labels can cause it (Shi et al., ICLR 2023). The charts "
        "show how far it has gone here.",
        _collapse,
    ),
    Question(
        "geometry",
        "Do classes separate as they should?",
        ("nc1", "nc2", "nc_error", "class_means"),
        "In a well-trained model the features have two properties: the samples of a class lie close to their class "
        "mean, and the class means are spread out evenly, every pair at the same wide angle. Together this is called "
        "neural collapse, which despite its name is wanted. The measures below say how far each model is from it. Both "
        "properties are needed: a model that puts all classes into one place has the first one too.",
        _geometry,
    ),
    Question(
        "drift",
        "Do clients pull in different directions?",
        (
            "drift",
            "prototype_consistency",
            "classifier_consistency",
            "classifier_angles",
            "alignment",
            "feature_drift",
        ),
        "In each round the chosen clients start from the same model, train on their own labels, and the server "
        "averages what comes back. If the clients' models move in different directions, the average keeps little of "
        "what a client has learned, and a client may forget classes that it does not have. Agreement is measured by "
        "cosines: 1 for the same direction, 0 for directions that have nothing in common, −1 for opposite ones.",
        lambda shown: _section_pictures(shown, "drift", "More about clients' models"),
    ),
    Question(
        "served",
        "Who is served?",
        ("classes", "calibration"),
        "A good mean accuracy can hide poor ones: a model may be useless for a class that few clients have, or for a "
        "client whose labels are rare.",
        _by_class_and_client,
    ),
)
