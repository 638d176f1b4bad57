"""The tables of the page: results, runs, health counters, configuration and versions."""

from collections.abc import Mapping, Sequence

from fedblade import protocols
from fedblade.core.words import plural
from fedblade.report._blocks import Block, Cell, Column, Details, Paragraph, Section, Table
from fedblade.report._health import health
from fedblade.results import (
    MISSING,
    ComparisonRow,
    Group,
    RunRecord,
    differing_keys,
    duration,
    flatten,
    last_heading,
    last_rounds,
    measured_on,
    number,
    over_last,
    percent,
    size,
)

_DAGGER = "†"
_CALIBRATED = f"{_DAGGER} after calibration at the end of the run"


def results(rows: Sequence[ComparisonRow]) -> Section:
    """The comparison table with the best and second best marked."""
    own = any(row.own_mean is not None for row in rows)
    columns = [
        Column("method", numeric=False),
        Column("seeds"),
        Column(f"{last_rounds(_evaluations(rows))}, %"),
        Column("final round, %"),
        *([Column("own models, %")] if own else []),
        Column(f"rounds to {rows[0].threshold:g} %"),
        *([] if own else [Column("seconds per round")]),
        Column("up / down per round"),
    ]
    body = [_result_cells(index, row, own=own) for index, row in enumerate(rows)]
    return Section("results", "Results", [Table("Comparison over seeds", columns, body), Paragraph(_notes(rows))])


def runs(groups: Sequence[Group]) -> Section:
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
    return Section("runs", "Runs", [Table("Every run", columns, body), Paragraph(note), *health(groups)])


def configuration(groups: Sequence[Group]) -> Section:
    """Settings all groups share, then the keys in which they differ."""
    merged = [_merged([flatten(run.config) for run in group.runs]) for group in groups]
    differing = differing_keys(merged)
    keys = dict.fromkeys(key for config in merged for key in config)
    shared = [[_code(key), _code(merged[0][key])] for key in keys if key not in differing]
    blocks: list[Block] = []
    if differing:
        heads = [Column("key", numeric=False), *(Column(group.label, numeric=False) for group in groups)]
        body = [[_code(key), *(_code(config.get(key, MISSING)) for config in merged)] for key in differing]
        summary = f"{plural(len(differing), 'key')} in which the groups differ"
        blocks.append(Details(summary, [Table("Differing settings", heads, body)], opened=True))
    if shared:
        heads = [Column("key", numeric=False), Column("value", numeric=False)]
        summary = f"{plural(len(shared), 'setting')} common to all runs"
        blocks.append(Details(summary, [Table("Common settings", heads, shared)]))
    return Section("configuration", "Configuration", blocks or [Paragraph("No run has a config.toml.")])


def versions(groups: Sequence[Group]) -> Section:
    """Which versions made the numbers."""
    merged = _merged([_versions(run) for group in groups for run in group.runs])
    rows = [[Cell(key), _code(value)] for key, value in merged.items()]
    heads = [Column("package", numeric=False), Column("version", numeric=False)]
    content = Table("Versions", heads, rows) if rows else Paragraph("No run has recorded its versions yet.")
    return Section("versions", "Versions", [content])


def _result_cells(index: int, row: ComparisonRow, *, own: bool) -> list[Cell]:
    several = len(row.rounds_to) > 1
    per_seed = " · ".join(row.rounds_to_seeds_text) if several and any(row.rounds_to) else ""
    pooled = f"pooled ± {percent(row.last10_pooled_std)}" if several and not row.calibrated else ""
    mark = _DAGGER if row.calibrated else ""
    return [
        Cell(row.label, index, tags=_tags(row)),
        Cell(str(len(row.seeds))),
        Cell(percent(row.ranked_mean), rank=row.rank, spread=_spread(row.ranked_std), mark=mark, small=pooled),
        Cell(percent(row.final_mean), rank=row.final_rank, spread=_spread(row.final_std), mark=mark),
        *([Cell(percent(row.own_mean), spread=_spread(row.own_std))] if own else []),
        Cell(row.rounds_to_text, small=per_seed),
        *([] if own else [Cell(duration(row.seconds_per_round))]),
        Cell(f"{size(row.bytes_up_per_round)} / {size(row.bytes_down_per_round)}"),
    ]


def _tags(row: ComparisonRow) -> tuple[tuple[str, bool], ...]:
    tags = [("personal models", False)] if row.accuracy_of == "personal" else []
    if row.finished < row.runs:
        broken = row.finished + row.failed == row.runs
        state = f"{row.failed} of {row.runs} failed" if broken else f"{row.finished} of {row.runs} finished"
        tags.append((state, True))
    return tuple(tags)


def _spread(std: float | None) -> str:
    return "" if std is None else f"± {percent(std)}"


def _notes(rows: Sequence[ComparisonRow]) -> str:
    several, counts = any(len(row.seeds) > 1 for row in rows), _evaluations(rows)
    notes = [f"{last_rounds(counts).capitalize()}: {_mean_of_last(counts)}."]
    if several:
        notes.append(f"Numbers are means ± the {protocols.DEVIATION}.")
        notes.append(f"Pooled: the sample standard deviation over {over_last(counts)} of all seeds together (n−1).")
    if any(row.calibrated for row in rows):
        notes.append(f"{_CALIBRATED}, which no round measured; its rounds before that are not ranked.")
    own = [(row.label, row.tests_apart) for row in rows if row.own_mean is not None]
    if own:
        notes.append(f"Own models: the mean over clients of their own models' accuracy on {measured_on(own)}.")
    if any(row.rank for row in rows):
        notes.append("1st (bold) and 2nd (underlined) mark the highest means among groups of one setting.")
    notes.append(f"Rounds count from 1{'; small print gives each seed' if several else ''}.")
    if any(row.rounds_to_mean is None for row in rows):
        notes.append("T+ means that not every seed reached the level within T rounds.")
    return " ".join(notes)


def _evaluations(rows: Sequence[ComparisonRow]) -> list[tuple[int, int]]:
    return [count for row in rows for count in row.evaluations]


def _mean_of_last(counts: Sequence[tuple[int, int]]) -> str:
    said = over_last(counts)
    return f"the test accuracy after {said}" if "only" in said else f"the mean of the test accuracies after {said}"


def _run_cells(index: int, group: Group, run: RunRecord) -> list[Cell]:
    done, planned = run.rounds_done, run.rounds_planned
    return [
        Cell(group.label, index),
        Cell(MISSING if run.seed is None else str(run.seed)),
        Cell(run.status, warning=not run.finished),
        Cell(str(done) if planned in (None, done) else f"{done} of {planned}"),
        Cell(percent(run.final_accuracy), mark=_DAGGER if run.calibrated else ""),
        Cell(percent(run.last10_accuracy)),
        Cell(percent(run.best_accuracy)),
        Cell(duration(number(run.summary.get("seconds")))),
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


def _code(string: str) -> Cell:
    return Cell(string, code=True)
