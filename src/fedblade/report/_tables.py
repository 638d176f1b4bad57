"""The tables of the page: results, runs, health counters, configuration and versions."""

from collections.abc import Mapping, Sequence

from fedblade.core.words import plural
from fedblade.report._blocks import Block, Cell, Details, Paragraph, Section, TableBlock, columns
from fedblade.report._health import health
from fedblade.results import (
    MISSING,
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

_DAGGER = "†"
_PAIR = ("key", "value")
_CALIBRATED = f"{_DAGGER} after calibration at the end of the run"


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
        note += f" {_CALIBRATED}; {over_last_rounds(counts)} and the best one are before it."
    return Section(
        "runs",
        "Runs",
        [TableBlock("Every run", columns(headings, ("run", "status")), body), Paragraph(note), *health(groups)],
    )


def configuration(groups: Sequence[Group]) -> Section:
    """Settings all groups share, then the keys in which they differ."""
    merged = [_merged([flat_settings(run.config) for run in group.runs]) for group in groups]
    differing = differing_keys(merged)
    keys = dict.fromkeys(key for config in merged for key in config)
    shared = [[_code(key), _code(merged[0][key])] for key in keys if key not in differing]
    blocks: list[Block] = []
    if differing:
        heads = ["key", *(group.label for group in groups)]
        body = [[_code(key), *(_code(config.get(key, MISSING)) for config in merged)] for key in differing]
        summary = f"{plural(len(differing), 'key')} in which the groups differ"
        blocks.append(Details(summary, [TableBlock("Differing settings", columns(heads, heads), body)], opened=True))
    if shared:
        summary = f"{plural(len(shared), 'setting')} common to all runs"
        blocks.append(Details(summary, [TableBlock("Common settings", columns(_PAIR, _PAIR), shared)]))
    return Section("configuration", "Configuration", blocks or [Paragraph("No run has a config.toml.")])


def versions_section(groups: Sequence[Group]) -> Section:
    """Which versions made the numbers."""
    merged = _merged([_versions(run) for group in groups for run in group.runs])
    rows = [[Cell(key), _code(value)] for key, value in merged.items()]
    heads = ("package", "version")
    content = (
        TableBlock("Versions", columns(heads, heads), rows)
        if rows
        else Paragraph("No run has recorded its versions yet.")
    )
    return Section("versions", "Versions", [content])


def _run_cells(index: int, group: Group, run: RunRecord) -> list[Cell]:
    done, planned = run.rounds_done, run.rounds_planned
    return [
        Cell(group.label, group=index),
        Cell(MISSING if run.seed is None else str(run.seed)),
        Cell(run.status, warning=not run.finished),
        Cell(str(done) if planned in (None, done) else f"{done} of {planned}"),
        Cell(percent(run.final_accuracy), mark=_DAGGER if run.calibrated else ""),
        Cell(percent(run.last10_accuracy)),
        Cell(percent(run.best_accuracy)),
        Cell(duration(finite_number(run.summary.get("seconds")))),
    ]


def _versions(run: RunRecord) -> dict[str, str]:
    stored = run.summary.get("versions")
    return flat_settings(stored) if isinstance(stored, Mapping) else {}


def _merged(configs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Every key once, with its distinct values joined."""
    merged: dict[str, dict[str, None]] = {}
    for config in configs:
        for key, value in config.items():
            merged.setdefault(key, {})[value] = None
    return {key: " / ".join(values) for key, values in merged.items() if key != "seed"}


def _code(string: str) -> Cell:
    return Cell(string, code=True)
