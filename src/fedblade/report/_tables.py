"""The tables of the page: runs, health counters, configuration and versions."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from fedblade.core.words import plural
from fedblade.report._blocks import Block, Cell, Details, Paragraph, Section, TableBlock, columns
from fedblade.report._selection import Selection
from fedblade.results import (
    CALIBRATED_NOTE,
    CLAIMED_NOTE,
    DAGGER,
    DOUBLE_DAGGER,
    MISSING,
    STATE_COUNTERS,
    Group,
    RunRecord,
    differing_keys,
    duration,
    finite_number,
    flat_settings,
    last_rounds_heading,
    over_last_rounds,
    percent,
)

_PAIR = ("key", "value")
_COUNTER = "count_"
_NOTE = (
    "A run counts what may point to a problem, such as features that never change within a batch or clients without "
    "samples. A count is no error by itself. Events are added up over rounds and seeds. A state is given for the last "
    "round, as a mean over seeds; the highest value of any round stands beside it if it was higher."
)


def runs(shown: Selection, threshold: float) -> Section:
    """One line per run."""
    groups = shown.groups
    counts = [(run.rounds_evaluated, run.rounds_done) for group in groups for run in group.runs]
    headings = [
        "run", "seed", "status", "rounds", "final, %", f"{last_rounds_heading(counts)}, %", "best, % (optimistic)",
        f"rounds to {threshold:g} %", "training seconds",
    ]  # fmt: skip
    body = [
        _run_cells(shown.place(index), group, run, threshold)
        for index, group in enumerate(groups)
        for run in group.runs
    ]
    note = (
        "The best round is chosen by looking at test data, so it looks too good; compare methods by the other columns."
    )
    if any(run.calibrated for group in groups for run in group.runs):
        note += f" {CALIBRATED_NOTE}; {over_last_rounds(counts)} and the best one are before it."
    if any(run.claimed for group in groups for run in group.runs):
        note += f" {CLAIMED_NOTE}."
    listed = TableBlock("Every run", columns(headings, ("run", "status")), body, tall=not shown.many)
    return Section("runs", "Runs", [listed, Paragraph(note), *_health(shown)])


def configuration(shown: Selection) -> Section:
    """The keys in which the groups differ, then the settings that all groups share, both folded."""
    groups = shown.groups
    merged = [_distinct_settings([flat_settings(run.config) for run in group.runs]) for group in groups]
    differing = differing_keys(merged)
    keys = dict.fromkeys(key for config in merged for key in config)
    shared = [[_code_cell(key), _code_cell(merged[0][key])] for key in keys if key not in differing]
    blocks: list[Block] = []
    if differing:
        summary = f"{plural(len(differing), 'setting')} in which the groups differ"
        blocks.append(Details(summary, [_differing_table(shown, differing, merged)]))
    if shared:
        summary = f"{plural(len(shared), 'setting')} common to all runs"
        blocks.append(Details(summary, [TableBlock("Common settings", columns(_PAIR, _PAIR), shared)]))
    return Section("configuration", "Configuration", blocks or [Paragraph("No run has a config.toml.")])


def versions_section(groups: Sequence[Group]) -> Section:
    """Which versions made the numbers."""
    merged = _distinct_settings([_versions(run) for group in groups for run in group.runs])
    rows = [[Cell(key), _code_cell(value)] for key, value in merged.items()]
    heads = ("package", "version")
    content = (
        TableBlock("Versions", columns(heads, heads), rows)
        if rows
        else Paragraph("No run has recorded its versions yet.")
    )
    return Section("versions", "Versions", [content])


def _by_group(caption: str, first: str, shown: Selection, rows: Mapping[str, Sequence[Cell]]) -> TableBlock:
    """A table of rows with a cell per group: with many groups, a table with a row per group instead."""
    labels = [group.label for group in shown.groups]
    if not shown.many:
        body = [[Cell(name, code=cells[0].code), *cells] for name, cells in rows.items()]
        return TableBlock(caption, columns([first, *labels], [first, *labels] if first == "key" else [first]), body)
    turned = zip(labels, zip(*rows.values(), strict=True), strict=True)
    body = [[Cell(label, group=shown.place(at)), *cells] for at, (label, cells) in enumerate(turned)]
    return TableBlock(caption, columns(["method", *rows], ["method"]), body, tall=False)


def _differing_table(shown: Selection, keys: Sequence[str], configs: Sequence[Mapping[str, str]]) -> TableBlock:
    rows = {key: [_code_cell(config.get(key, MISSING)) for config in configs] for key in keys}
    return _by_group("Differing settings", "key", shown, rows)


def _run_cells(place: int | None, group: Group, run: RunRecord, threshold: float) -> list[Cell]:
    done, planned = run.rounds_done, run.rounds_planned
    claimed = DOUBLE_DAGGER if run.claimed else ""
    return [
        Cell(group.label, group=place),
        Cell(MISSING if run.seed is None else str(run.seed)),
        Cell(run.status, warning=not run.finished),
        Cell(str(done) if planned in (None, done) else f"{done} of {planned}"),
        Cell(percent(run.final_accuracy), mark=(DAGGER if run.calibrated else "") + claimed),
        Cell(percent(run.last10_accuracy), mark=claimed),
        Cell(percent(run.best_accuracy), mark=claimed),
        Cell(f"{done}+" if run.rounds_to(threshold) is None else str(run.rounds_to(threshold))),
        Cell(duration(finite_number(run.summary.get("seconds")))),
    ]


def _versions(run: RunRecord) -> dict[str, str]:
    stored = run.summary.get("versions")
    return flat_settings(stored) if isinstance(stored, Mapping) else {}


def _distinct_settings(configs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Every key once, with its distinct values joined."""
    merged: dict[str, dict[str, None]] = {}
    for config in configs:
        for key, value in config.items():
            merged.setdefault(key, {})[value] = None
    return {key: " / ".join(values) for key, values in merged.items() if key != "seed"}


def _code_cell(string: str) -> Cell:
    return Cell(string, code=True)


def _health(shown: Selection) -> list[Block]:
    """The counters with a value other than zero, nothing where there are none."""
    groups = shown.groups
    keys = sorted({key for group in groups for run in group.runs for r in run.history for key in r.numbers})
    rows: dict[str, list[Cell]] = {}
    for key in (key for key in keys if key.startswith(_COUNTER)):
        counted = [list(_counted(group, key)) for group in groups]
        if any(value for runs in counted for values in runs for value in values):
            when = "last round" if key in STATE_COUNTERS else "all rounds"
            name = f"{key.removeprefix(_COUNTER).replace('_', ' ')}, {when}"
            total = (Cell(f"{sum(map(sum, runs)):,.0f}") for runs in counted)
            rows[name] = [_state(runs) for runs in counted] if key in STATE_COUNTERS else list(total)
    if not rows:
        return []
    listed = _by_group("Warning counters", "counter", shown, rows)
    return [Details("Warning counters that are not zero", [listed, Paragraph(_NOTE)])]


def _counted(group: Group, key: str) -> Iterator[list[float]]:
    """The values over rounds, of every run that has values."""
    per_run = ([r.numbers[key] for r in run.history if key in r.numbers] for run in group.runs)
    return (values for values in per_run if values)


def _state(runs: Sequence[Sequence[float]]) -> Cell:
    """The last value, and the largest where that is more."""
    if not runs:
        return Cell("0")
    last, most = statistics.fmean(values[-1] for values in runs), max(map(max, runs))
    return Cell(f"{last:,.1f}".removesuffix(".0"), small=f"at most {most:,.0f}" if most > last else "")
