"""The panels of a figure as plain values: what `_draw` puts on paper."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedblade.core.errors import Misconfigured
from fedblade.figures._arrays import Matrix, array_matrix
from fedblade.figures._points import FLOOR
from fedblade.figures._series import Series, group_series, last_value, sweep_series
from fedblade.figures._settings import Placed, place
from fedblade.figures._specs import Field, Part
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
_WHOLE = ("rounds", "spectrum", "classes", "stages")


@dataclass(frozen=True)
class Line:
    """A line: `name` says which runs, `part` which of several fields of the panel."""

    name: str
    part: str
    series: Series


@dataclass(frozen=True)
class LinePanel:
    """Lines over one pair of axes; `log` names the axes with a logarithmic scale.

    Panels of one `scale` have the same vertical axis; an empty one is nobody else's. Lines leave the panel on their way
    to the `floor`. With `diagonal`, equal numbers across and up are marked. `names` are those of all lines that the
    runs could have, drawn or not: a line's place among them is its colour.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log: str = ""
    whole_x: bool = False
    scale: str = ""
    floor: float = -math.inf
    diagonal: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class MatrixPanel:
    """Numbers `values [rows][columns]` as shades, None where there is none; `kind` is what they are."""

    title: str
    x_label: str
    y_label: str
    shade: str
    values: Matrix
    kind: str = "cosines"


Panel = LinePanel | MatrixPanel


def build_panels(
    part: Part, groups: Sequence[Group], *, strict: bool, among: Sequence[Group] | None = None
) -> list[Panel]:
    """The panels the runs have numbers for, every setting with every list of fields.

    With `strict`, fields that no run has are an error that says how to have them. Colours are those that the groups
    have `among` others, so that the same runs look the same in every figure.
    """
    placed = place(part, groups)
    names = tuple(dict.fromkeys(each.line for each in (*place(part, among or groups), *placed)))
    here = _present(part, placed)
    missing = [each for each in part.required if _source(each) not in {_source(found) for found in here}]
    if strict and missing:
        raise Misconfigured(_complaint(part, missing))
    kept = [panel for panel in part.panels if not set(map(_source, panel)) & set(map(_source, missing))]
    titles = dict.fromkeys(each.panel for each in placed)
    panels = (_panel(part, fields, title, placed) for title in titles for fields in kept)
    return _distinct(_named(panel, names) for panel in panels if panel is not None)


def _named(panel: Panel, names: tuple[str, ...]) -> Panel:
    return replace(panel, names=names) if isinstance(panel, LinePanel) else panel


def _source(wanted: Field) -> str:
    """Fields of one metric come together: where one is undefined, the others are still drawn."""
    return wanted.metric or wanted.key


def _present(part: Part, placed: Sequence[Placed]) -> list[Field]:
    def has(wanted: Field) -> bool:
        if wanted is part.note or part.draw == "sweep":
            return any(last_value(each.group, wanted) is not None for each in placed)
        if part.draw in _MATRICES:
            return any(_matrix(part.draw, each.group, wanted) is not None for each in placed)
        return any(group_series(each.group, part.draw, wanted) is not None for each in placed)

    if part.draw == "sweep":
        _check_sweep(part, placed)
    return [wanted for wanted in part.required if has(wanted)]


def _check_sweep(part: Part, placed: Sequence[Placed]) -> None:
    """Refuse runs of which no line would have two points."""
    values: dict[tuple[str, str], set[float]] = {}
    for each in placed:
        if each.x is not None:
            values.setdefault((each.panel, each.line), set()).add(each.x)
    if max(map(len, values.values()), default=0) < 2:
        found = sorted(set().union(*values.values()))
        have = "none of these has it as a number"
        if found:
            have = f"these have {', '.join(f'{x:g}' for x in found)}, and no line would have two points"
        raise Misconfigured(
            f"figure '{part.name}' needs runs that differ in {part.x}; {have}. "
            f"Vary it with `fedblade sweep`, or run the preset of the figure."
        )


def _complaint(part: Part, missing: Sequence[Field]) -> str:
    keys = ", ".join(dict.fromkeys(each.key for each in missing))
    sources = "; ".join(dict.fromkeys(each.source for each in missing))
    return f"figure '{part.name}' needs {keys}, which none of the runs has. Run again with {sources}."


def _panel(part: Part, fields: Sequence[Field], title: str, placed: Sequence[Placed]) -> Panel | None:
    own = [each for each in placed if each.panel == title]
    if part.draw in _MATRICES:
        return _matrix_panel(part, fields[0], title, own)
    lines = tuple(_lines(part, fields, own))
    if not lines:
        return None
    return LinePanel(
        title=", ".join(filter(None, (title, _kind(part, fields), _noted(part, own)))),
        x_label=part.axis or _AXES.get(part.draw) or part.x.rpartition(".")[2],
        y_label=fields[0].label,
        lines=lines,
        log=part.log,
        whole_x=part.draw in _WHOLE,
        scale=_scale(fields, own),
        floor=math.log(FLOOR) if part.draw == "spectrum" else -math.inf,
        diagonal=part.draw == "reliability",
    )


def _scale(fields: Sequence[Field], own: Sequence[Placed]) -> str:
    """Numbers of one kind are compared by eye between panels, but not between data sets, which are not equally hard."""
    data = dict.fromkeys(each.group.runs[0].part("dataset") for each in own)
    return f"{fields[0].scale or fields[0].label} of {', '.join(data)}"


def _lines(part: Part, fields: Sequence[Field], own: Sequence[Placed]) -> Iterator[Line]:
    for name in dict.fromkeys(each.line for each in own):
        members = [each for each in own if each.line == name]
        for wanted in fields:
            shown = wanted.name if len(fields) > 1 else ""
            if part.draw == "sweep":
                found = [sweep_series([(each.x, each.group) for each in members], wanted)]
            else:
                found = [group_series(each.group, part.draw, wanted) for each in members]
            yield from (Line(name, shown, series) for series in found if series is not None)


def _kind(part: Part, fields: Sequence[Field]) -> str:
    """The field's name where another panel has the same label."""
    alike = sum(panel[0].label == fields[0].label for panel in part.panels)
    return fields[0].name if len(fields) == 1 and alike > 1 else ""


def _noted(part: Part, own: Sequence[Placed]) -> str:
    """The value of the noted field, where it belongs to one group."""
    value = last_value(own[0].group, part.note) if part.note is not None and len(own) == 1 else None
    return "" if part.note is None or value is None else f"{part.note.label} = {value:.2f}"


def _matrix_panel(part: Part, wanted: Field, title: str, own: Sequence[Placed]) -> MatrixPanel | None:
    """The first table of these groups; of label maps that of one seed, named where there are several."""
    across, down = _MATRICES[part.draw]
    for each in own:
        values = _matrix(part.draw, each.group, wanted)
        if values is not None:
            held = [run.seed for run in each.group.counted if run.partition is not None]
            seed = f"seed {held[0]}" if part.draw == "labels" and len(each.group.counted) > 1 else ""
            return MatrixPanel(", ".join(filter(None, (title, seed))), across, down, wanted.label, values, part.draw)
    return None


def _matrix(draw: str, group: Group, wanted: Field) -> Matrix | None:
    """Class by client of the labels, else class by class."""
    if draw != "labels":
        return array_matrix(group, draw, wanted.key)
    maps = (run.partition.counts for run in group.counted if run.partition is not None)
    return next((tuple(zip(*counts, strict=True)) for counts in maps), None)


def _distinct(panels: Iterator[Panel]) -> list[Panel]:
    """Panels without repetitions: runs that differ elsewhere may share a partition."""
    seen: list[object] = []
    kept = []
    for panel in panels:
        content = panel.values if isinstance(panel, MatrixPanel) and panel.kind == "labels" else panel
        if content not in seen:
            seen.append(content)
            kept.append(panel)
    return kept
