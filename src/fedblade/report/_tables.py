"""The tables of the page: results, runs, health counters, configuration and versions."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from fedblade.core.words import plural
from fedblade.report._blocks import Block, Cell, Details, Paragraph, Section, TableBlock, columns
from fedblade.results import (
    CALIBRATED_NOTE,
    CLAIMED_NOTE,
    DAGGER,
    DOUBLE_DAGGER,
    MISSING,
    STATE_COUNTERS,
    ComparisonRow,
    Group,
    RunRecord,
    comparison_table,
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
    "Things a run counts so that they do not pass unnoticed, such as features that never change within a batch or "
    "clients without samples. They are signs to look at, not errors. What happens is added up over rounds and seeds; "
    "how things are is given for the last round, as a mean over seeds, with the most in any round where that is more."
)


def results(rows: Sequence[ComparisonRow]) -> Section:
    """The comparison table with the best and second best marked."""
    compared = comparison_table(rows, "page")
    body = [
        [Cell(**vars(cell), group=index if cell is cells[0] else None) for cell in cells]
        for index, cells in enumerate(compared.rows)
    ]
    listed = TableBlock("Comparison over seeds", compared.columns, body)
    return Section("results", "Results", [listed, Paragraph(" ".join(compared.notes))])


def runs(groups: Sequence[Group]) -> Section:
    """One line per run."""
    counts = [(run.rounds_evaluated, run.rounds_done) for group in groups for run in group.runs]
    headings = [
        "run", "seed", "status", "rounds", "final, %", f"{last_rounds_heading(counts)}, %", "best, % (optimistic)",
        "training seconds",
    ]  # fmt: skip
    body = [_run_cells(index, group, run) for index, group in enumerate(groups) for run in group.runs]
    note = "The best round is chosen by looking at test data, so it flatters every method; compare by the others."
    if any(run.calibrated for group in groups for run in group.runs):
        note += f" {CALIBRATED_NOTE}; {over_last_rounds(counts)} and the best one are before it."
    if any(run.claimed for group in groups for run in group.runs):
        note += f" {CLAIMED_NOTE}."
    return Section(
        "runs",
        "Runs",
        [TableBlock("Every run", columns(headings, ("run", "status")), body), Paragraph(note), *_health(groups)],
    )


def configuration(groups: Sequence[Group]) -> Section:
    """Settings all groups share, then the keys in which they differ."""
    merged = [_distinct_settings([flat_settings(run.config) for run in group.runs]) for group in groups]
    differing = differing_keys(merged)
    keys = dict.fromkeys(key for config in merged for key in config)
    shared = [[_code_cell(key), _code_cell(merged[0][key])] for key in keys if key not in differing]
    blocks: list[Block] = []
    if differing:
        heads = ["key", *(group.label for group in groups)]
        body = [[_code_cell(key), *(_code_cell(config.get(key, MISSING)) for config in merged)] for key in differing]
        summary = f"{plural(len(differing), 'key')} in which the groups differ"
        blocks.append(Details(summary, [TableBlock("Differing settings", columns(heads, heads), body)], opened=True))
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


def _run_cells(index: int, group: Group, run: RunRecord) -> list[Cell]:
    done, planned = run.rounds_done, run.rounds_planned
    claimed = DOUBLE_DAGGER if run.claimed else ""
    return [
        Cell(group.label, group=index),
        Cell(MISSING if run.seed is None else str(run.seed)),
        Cell(run.status, warning=not run.finished),
        Cell(str(done) if planned in (None, done) else f"{done} of {planned}"),
        Cell(percent(run.final_accuracy), mark=(DAGGER if run.calibrated else "") + claimed),
        Cell(percent(run.last10_accuracy), mark=claimed),
        Cell(percent(run.best_accuracy), mark=claimed),
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


def _health(groups: Sequence[Group]) -> list[Block]:
    """The counters with a value other than zero, nothing where there are none."""
    keys = sorted({key for group in groups for run in group.runs for r in run.history for key in r.numbers})
    rows = []
    for key in (key for key in keys if key.startswith(_COUNTER)):
        counted = [list(_counted(group, key)) for group in groups]
        if any(value for runs in counted for values in runs for value in values):
            when = "last round" if key in STATE_COUNTERS else "all rounds"
            name = f"{key.removeprefix(_COUNTER).replace('_', ' ')}, {when}"
            rows.append([Cell(name), *(_state(runs) if key in STATE_COUNTERS else _events(runs) for runs in counted)])
    if not rows:
        return []
    headings = ["counter", *(group.label for group in groups)]
    listed = TableBlock("Health counters", columns(headings, ("counter",)), rows)
    return [Details("Health counters that are not zero", [listed, Paragraph(_NOTE)])]


def _counted(group: Group, key: str) -> Iterator[list[float]]:
    """The values over rounds, of every run that has values."""
    per_run = ([r.numbers[key] for r in run.history if key in r.numbers] for run in group.runs)
    return (values for values in per_run if values)


def _events(runs: Sequence[Sequence[float]]) -> Cell:
    return Cell(f"{sum(map(sum, runs)):,.0f}")


def _state(runs: Sequence[Sequence[float]]) -> Cell:
    """The last value, and the largest where that is more."""
    if not runs:
        return Cell("0")
    last, most = statistics.fmean(values[-1] for values in runs), max(map(max, runs))
    return Cell(f"{last:,.1f}".removesuffix(".0"), small=f"at most {most:,.0f}" if most > last else "")
