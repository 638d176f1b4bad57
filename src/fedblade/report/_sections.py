"""The tables of the page: results, runs, configuration and versions."""

from collections.abc import Mapping, Sequence

from fedblade import protocols
from fedblade.core.words import plural
from fedblade.report._health import health
from fedblade.report._html import Column, details, name_cell, paragraph, section, table
from fedblade.report._svg import escape
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

_MARKS = {1: ("best", "1st"), 2: ("second", "2nd")}
_DAGGER = "†"
_CALIBRATED = f"{_DAGGER} after calibration at the end of the run"


def results(rows: Sequence[ComparisonRow]) -> str:
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
    return section("results", "Results", table("Comparison over seeds", columns, body), *_result_notes(rows))


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


def _result_cells(index: int, row: ComparisonRow, *, own: bool) -> list[str]:
    several = len(row.rounds_to) > 1
    per_seed = f"<small>{' · '.join(row.rounds_to_seeds_text)}</small>" if several and any(row.rounds_to) else ""
    pooled = f"<small>pooled ± {percent(row.last10_pooled_std)}</small>" if several else ""
    dagger = _DAGGER if row.calibrated else ""
    return [
        name_cell(index, row.label) + _tags(row),
        str(len(row.seeds)),
        _marked(row.ranked_mean, row.ranked_std, row.rank) + (dagger or pooled),
        _marked(row.final_mean, row.final_std, row.final_rank) + dagger,
        *([_marked(row.own_mean, row.own_std, None)] if own else []),
        escape(row.rounds_to_text) + per_seed,
        *([] if own else [duration(row.seconds_per_round)]),
        f"{size(row.bytes_up_per_round)} / {size(row.bytes_down_per_round)}",
    ]


def _tags(row: ComparisonRow) -> str:
    tags = ['<span class="tag">personal models</span>'] if row.accuracy_of == "personal" else []
    if row.finished < row.runs:
        broken = row.finished + row.failed == row.runs
        state = f"{row.failed} of {row.runs} failed" if broken else f"{row.finished} of {row.runs} finished"
        tags.append(f'<span class="tag warn">{state}</span>')
    return f'<span class="tags">{" ".join(tags)}</span>' if tags else ""


def _marked(mean: float | None, std: float | None, rank: int | None) -> str:
    """The number with its spread; place by weight, underline and a written mark, so not by colour."""
    spread = f' <span class="std">± {percent(std)}</span>' if std is not None else ""
    if rank not in _MARKS:
        return f"{percent(mean)}{spread}"
    kind, mark = _MARKS[rank]
    return f'<span class="place">{mark}</span> <span class="{kind}">{percent(mean)}</span>{spread}'


def _result_notes(rows: Sequence[ComparisonRow]) -> list[str]:
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
    return [paragraph(" ".join(notes))]


def _evaluations(rows: Sequence[ComparisonRow]) -> list[tuple[int, int]]:
    return [count for row in rows for count in row.evaluations]


def _mean_of_last(counts: Sequence[tuple[int, int]]) -> str:
    said = over_last(counts)
    return f"the test accuracy after {said}" if "only" in said else f"the mean of the test accuracies after {said}"


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
