"""The tables of the page: results, runs, configuration and versions."""

from collections.abc import Mapping, Sequence

from fedblade.core.words import plural
from fedblade.report._health import health
from fedblade.report._html import Column, details, name_cell, paragraph, section, table
from fedblade.report._svg import escape
from fedblade.results import (
    MISSING,
    ComparisonRow,
    Group,
    RunRecord,
    TableCell,
    comparison_table,
    differing_keys,
    duration,
    flatten,
    last_heading,
    number,
    over_last,
    percent,
)

_MARKS = {1: ("best", "1st"), 2: ("second", "2nd")}
_DAGGER = "†"
_CALIBRATED = f"{_DAGGER} after calibration at the end of the run"


def results(rows: Sequence[ComparisonRow]) -> str:
    """The comparison table with the best and second best marked."""
    compared = comparison_table(rows, "page")
    columns = [Column(column.heading, numeric=column.numeric) for column in compared.columns]
    body = [
        [name_cell(index, cells[0].text) + _tags(cells[0]), *map(_content, cells[1:])]
        for index, cells in enumerate(compared.rows)
    ]
    notes = paragraph(" ".join(compared.notes))
    return section("results", "Results", table("Comparison over seeds", columns, body), notes)


def runs(groups: Sequence[Group]) -> str:
    """One line per run."""
    counts = [(run.rounds_evaluated, run.rounds_done) for group in groups for run in group.runs]
    columns = [
        Column("run", numeric=False),
        Column("seed"),
        Column("status", numeric=False),
        Column("rounds"),
        Column("final, %"),
        Column(f"{last_heading(counts)}, %"),
        Column("best, % (optimistic)"),
        Column("training seconds"),
    ]
    body = [_run_cells(index, group, run) for index, group in enumerate(groups) for run in group.runs]
    note = "The best round is chosen by looking at test data, so it flatters every method; compare by the others."
    if any(run.calibrated for group in groups for run in group.runs):
        note += f" {_CALIBRATED}; {over_last(counts)} and the best one are before it."
    return section("runs", "Runs", table("Every run", columns, body), paragraph(note), health(groups))


def configuration(groups: Sequence[Group]) -> str:
    """Settings all groups share, then the keys in which they differ."""
    merged = [_merged([flatten(run.config) for run in group.runs]) for group in groups]
    differing = differing_keys(merged)
    keys = dict.fromkeys(key for config in merged for key in config)
    shared = [[_code(key), _code(merged[0][key])] for key in keys if key not in differing]
    parts = []
    if differing:
        heads = [Column("key", numeric=False), *(Column(group.label, numeric=False) for group in groups)]
        body = [[_code(key), *(_code(config.get(key, MISSING)) for config in merged)] for key in differing]
        parts.append(
            details(
                f"{plural(len(differing), 'key')} in which the groups differ",
                table("Differing settings", heads, body),
                opened=True,
            )
        )
    if shared:
        heads = [Column("key", numeric=False), Column("value", numeric=False)]
        parts.append(
            details(f"{plural(len(shared), 'setting')} common to all runs", table("Common settings", heads, shared))
        )
    return section("configuration", "Configuration", *(parts or [paragraph("No run has a config.toml.")]))


def versions(groups: Sequence[Group]) -> str:
    """Which versions made the numbers."""
    merged = _merged([_versions(run) for group in groups for run in group.runs])
    rows = [[escape(key), _code(value)] for key, value in merged.items()]
    heads = [Column("package", numeric=False), Column("version", numeric=False)]
    content = table("Versions", heads, rows) if rows else paragraph("No run has recorded its versions yet.")
    return section("versions", "Versions", content)


def _tags(cell: TableCell) -> str:
    tags = [f'<span class="tag{" warn" if warns else ""}">{text}</span>' for text, warns in cell.tags]
    return f'<span class="tags">{" ".join(tags)}</span>' if tags else ""


def _content(cell: TableCell) -> str:
    """The number with what follows it; place by weight, underline and a written mark, so not by colour."""
    spread = f' <span class="std">{cell.spread}</span>' if cell.spread else ""
    small = f"<small>{cell.small}</small>" if cell.small else ""
    text = escape(cell.text)
    if cell.rank in _MARKS:
        kind, mark = _MARKS[cell.rank]
        text = f'<span class="place">{mark}</span> <span class="{kind}">{text}</span>'
    return f"{text}{spread}{cell.mark}{small}"


def _run_cells(index: int, group: Group, run: RunRecord) -> list[str]:
    done, planned = run.rounds_done, run.rounds_planned
    status = escape(run.status)
    return [
        name_cell(index, group.label),
        MISSING if run.seed is None else str(run.seed),
        status if run.finished else f'<span class="tag warn">{status}</span>',
        str(done) if planned in (None, done) else f"{done} of {planned}",
        percent(run.final_accuracy) + (_DAGGER if run.calibrated else ""),
        percent(run.last10_accuracy),
        percent(run.best_accuracy),
        duration(number(run.summary.get("seconds"))),
    ]


def _versions(run: RunRecord) -> dict[str, str]:
    stored = run.summary.get("versions")
    return flatten(stored) if isinstance(stored, Mapping) else {}


def _merged(configs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Every key once, with its distinct values joined."""
    merged: dict[str, dict[str, None]] = {}
    for config in configs:
        for key, value in config.items():
            merged.setdefault(key, {})[value] = None
    return {key: " / ".join(values) for key, values in merged.items() if key != "seed"}


def _code(string: str) -> str:
    return f"<code>{escape(string)}</code>"
