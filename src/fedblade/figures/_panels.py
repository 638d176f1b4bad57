"""The panels of a figure as plain values: which runs and which numbers every panel shows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedblade.charts import (
    SMALLEST_EIGENVALUE,
    Axis,
    Line,
    LinePanel,
    Matrix,
    MatrixPanel,
    Panel,
    Series,
    class_matrix,
    final_value,
    group_series,
    row_words,
    sweep_series,
)
from fedblade.core.errors import Misconfigured
from fedblade.figures._settings import Placed, place
from fedblade.figures._specs import Number, Part
from fedblade.results import Group

_AXES = {
    "rounds": "round",
    "traffic": "sent up and down (MB)",
    "time": "training time (s)",
    "spectrum": "eigenvalue index",
    "classes": "class, worst first",
    "reliability": "confidence (%)",
    "clients": "clients (%)",
    "stages": "iteration of fine-tuning",
}
_MATRICES = {"cosines": ("class", "class"), "confusion": ("answer", "true class"), "labels": ("client", "class")}
"""What lies across and down."""
_MEGABYTE = 1e6
_WHOLE = ("rounds", "spectrum", "classes", "stages")


def build_panels(
    part: Part, groups: Sequence[Group], *, strict: bool, among: Sequence[Group] | None = None
) -> list[Panel]:
    """The panels the runs have numbers for, every setting with every list of numbers.

    With `strict`, numbers that no run has are an error that says how to have them. Colours are those that the groups
    have `among` others, so that the same runs look the same in every figure.
    """
    placed = place(part, groups)
    names = tuple(dict.fromkeys(entry.line for entry in (*place(part, among or groups), *placed)))
    if part.draw == "sweep":
        _check_sweep(part, placed)
    sources = {_source(number) for number in part.required if _is_present(part, number, placed)}
    missing = [number for number in part.required if _source(number) not in sources]
    if strict and missing:
        raise Misconfigured(_complaint(part, missing))
    part = part.described(groups)
    kept = [numbers for numbers in part.panels if {_source(number) for number in numbers} <= sources]
    titles = dict.fromkeys(entry.panel for entry in placed)
    panels = (
        _panel(part, numbers, title, [entry for entry in placed if entry.panel == title], names)
        for title in titles
        for numbers in kept
    )
    return _without_repetitions(panel for panel in panels if panel is not None)


def _source(number: Number) -> str:
    """Numbers of one metric come together: where one is undefined, the others are still drawn."""
    return number.metric or number.key


def _is_present(part: Part, number: Number, placed: Sequence[Placed]) -> bool:
    groups = [entry.group for entry in placed]
    if number is part.note or part.draw == "sweep":
        return any(final_value(group, number.key) is not None for group in groups)
    if part.draw in _MATRICES:
        return any(_matrix(part.draw, group) is not None for group in groups)
    return any(_series(part, number, group) is not None for group in groups)


def _check_sweep(part: Part, placed: Sequence[Placed]) -> None:
    """Refuse runs of which no line would have two points."""
    values: dict[tuple[str, str], set[float]] = {}
    for entry in placed:
        if entry.x is not None:
            values.setdefault((entry.panel, entry.line), set()).add(entry.x)
    if max(map(len, values.values()), default=0) < 2:
        present = sorted(set().union(*values.values()))
        have = "none of these has it as a number"
        if present:
            have = f"these have {', '.join(f'{x:g}' for x in present)}, and no line would have two points"
        raise Misconfigured(
            f"figure '{part.name}' needs runs that differ in {part.x}; {have}. "
            f"Vary it with `fedblade sweep`, or run the preset of the figure."
        )


def _complaint(part: Part, missing: Sequence[Number]) -> str:
    keys = ", ".join(dict.fromkeys(number.key for number in missing))
    sources = "; ".join(dict.fromkeys(number.source for number in missing))
    return f"figure '{part.name}' needs {keys}, which none of the runs has. Run again with {sources}."


def _panel(
    part: Part, numbers: Sequence[Number], title: str, placed: Sequence[Placed], names: tuple[str, ...]
) -> Panel | None:
    if part.draw in _MATRICES:
        return _matrix_panel(part, numbers[0], title, placed)
    lines = tuple(_lines(part, numbers, placed, names))
    if not lines:
        return None
    # The page chooses the scale by the values. A figure for a paper states it, so that it is the same for all runs.
    floor = math.log(SMALLEST_EIGENVALUE) if part.draw == "spectrum" else -math.inf
    return LinePanel(
        title=", ".join(filter(None, (title, _part_name(part, numbers), _note_text(part, placed)))),
        x=Axis(
            part.axis or _AXES.get(part.draw) or part.x.rpartition(".")[2],
            scale="log" if "x" in part.log else "linear",
            whole=part.draw in _WHOLE,
        ),
        y=Axis(numbers[0].label, scale="log" if "y" in part.log else "linear", floor=floor),
        names=names,
        lines=lines,
        shared=_shared_axis(numbers[0], placed),
        diagonal=part.draw == "reliability",
    )


def _shared_axis(number: Number, placed: Sequence[Placed]) -> str:
    """Numbers of one kind are compared by eye between panels, but not between data sets, which are not equally hard."""
    data = dict.fromkeys(entry.group.runs[0].part("dataset") for entry in placed)
    return f"{number.scale or number.label} of {', '.join(data)}"


def _lines(part: Part, numbers: Sequence[Number], placed: Sequence[Placed], names: Sequence[str]) -> Iterator[Line]:
    for name in dict.fromkeys(entry.line for entry in placed):
        members = [entry for entry in placed if entry.line == name]
        for number in numbers:
            shown = number.part if len(numbers) > 1 else ""
            if part.draw == "sweep":
                series = [sweep_series([(entry.x, entry.group) for entry in members], number.key)]
            else:
                series = [_series(part, number, entry.group) for entry in members]
            yield from (Line(names.index(name), values, shown) for values in series if values is not None)


def _series(part: Part, number: Number, group: Group) -> Series | None:
    series = group_series(group, part.draw, number.key)
    if series is None and number.otherwise:
        series = group_series(group, part.draw, number.otherwise)
    if series is None or part.draw != "traffic":
        return series
    return replace(series, x=tuple(sent / _MEGABYTE for sent in series.x))


def _part_name(part: Part, numbers: Sequence[Number]) -> str:
    """The number's name where another panel has the same label."""
    alike = sum(panel[0].label == numbers[0].label for panel in part.panels)
    return numbers[0].part if len(numbers) == 1 and alike > 1 else ""


def _note_text(part: Part, placed: Sequence[Placed]) -> str:
    """The last value of the noted number, where it belongs to one group."""
    value = final_value(placed[0].group, part.note.key) if part.note is not None and len(placed) == 1 else None
    return "" if part.note is None or value is None else f"{part.note.label} = {value:.2f}"


def _matrix_panel(part: Part, number: Number, title: str, placed: Sequence[Placed]) -> MatrixPanel | None:
    """The first table of these groups; of label maps that of one seed, named where there are several."""
    for group in (entry.group for entry in placed):
        table = _matrix(part.draw, group)
        if table is not None:
            values, block = table
            across, down = (Axis(row_words(word, block)) for word in _MATRICES[part.draw])
            seeds = [run.seed for run in group.counted if run.partition is not None]
            seed = f"seed {seeds[0]}" if part.draw == "labels" and len(group.counted) > 1 else ""
            heading = ", ".join(filter(None, (title, seed)))
            return MatrixPanel(heading, across, down, Axis(number.label), values, part.draw)
    return None


def _matrix(draw: str, group: Group) -> tuple[Matrix, int] | None:
    """Class by client of the labels, else class by class; and how many classes a row stands for."""
    if draw != "labels":
        return class_matrix(group, draw)
    maps = (run.partition.counts for run in group.counted if run.partition is not None)
    return next(((tuple(zip(*counts, strict=True)), 1) for counts in maps), None)


def _without_repetitions(panels: Iterator[Panel]) -> list[Panel]:
    """Panels without repetitions: runs that differ elsewhere may share a partition."""
    seen: list[object] = []
    kept = []
    for panel in panels:
        content = panel.values if isinstance(panel, MatrixPanel) and panel.kind == "labels" else panel
        if content not in seen:
            seen.append(content)
            kept.append(panel)
    return kept
