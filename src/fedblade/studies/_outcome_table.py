"""The table of a reproduction: before its runs, and afterwards with our numbers beside the published ones."""

from collections.abc import Sequence

from fedblade import protocols
from fedblade.presets.published import COLUMNS, Published
from fedblade.results import Table, csv_text, latex_table, markdown_table
from fedblade.studies._outcomes import Outcome, progress_of
from fedblade.studies._reproduction import Reproduction
from fedblade.studies._table_columns import common_facts, differing_columns

_DEVIATIONS = {
    "seeds": protocols.DEVIATION,
    "clients": "standard deviation over the clients of a run (n), mean over runs",
}
_NUMBERS = ("ours", "paper", "difference")


def planned_table(plan: Reproduction) -> Table:
    """The chosen lines with the paper's numbers and, where it differs, the progress of their runs.

    The note says what all lines have in common.
    """
    lines = [{**line.facts, "state": progress_of(plan, line)} for line in plan.lines]
    differing = differing_columns(lines)
    columns = [column for column in differing if column != "state"]
    last = ["state"] if len(lines) == 1 or "state" in differing else []
    rows = [
        [*(facts.get(column, "") for column in columns), _paper(line.published), *(facts[column] for column in last)]
        for facts, line in zip(lines, plan.lines, strict=True)
    ]
    common = common_facts(lines, left_out={*columns, *last, *plan.preset.variants})
    notes = (f"the same in every line: {common}",)
    return Table.of_texts([*map(_heading, columns), "paper", *last], rows, _NUMBERS, notes)


def outcome_table(outcomes: Sequence[Outcome], remarks: Sequence[str]) -> Table:
    """The columns in which the lines differ, then our number, the paper's and the difference."""
    lines = [outcome.line.facts for outcome in outcomes]
    columns = differing_columns(lines)
    rows = [
        [
            *(facts.get(column, "") for column in columns),
            _ours(outcome),
            _paper(outcome.line.published),
            _signed(outcome),
        ]
        for facts, outcome in zip(lines, outcomes, strict=True)
    ]
    notes = ("difference = ours - paper", *remarks, *_deviation_notes(outcomes))
    return Table.of_texts([*map(_heading, columns), *_NUMBERS], rows, _NUMBERS, notes)


def outcome_files(plan: Reproduction, outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The table as Markdown, LaTeX and CSV, by the ending of the file."""
    title, table = f"{plan.preset.id}: {plan.preset.summary}", outcome_table(outcomes, plan.remarks)
    notes = "".join(f"*{note}.*\n" for note in table.notes)
    return {
        ".md": f"# {title}\n\n{notes}\n{markdown_table(table)}",
        ".tex": latex_table(table, ". ".join((title, *table.notes))),
        ".csv": _comma_separated(plan.preset.id, outcomes, plan.remarks),
    }


def _comma_separated(preset_id: str, outcomes: Sequence[Outcome], remarks: Sequence[str]) -> str:
    """A CSV file with every column of the published results and every number in full."""
    axes = list(dict.fromkeys(axis for outcome in outcomes for axis in outcome.line.extra))
    header = ["preset", *COLUMNS, *axes, "metric", "ours_mean", "ours_std", "ours_seeds", "runs", "bound"]
    header += ["paper_mean", "paper_std", "difference", "note"]
    lines: list[list[str]] = []
    notes = (*remarks, *_deviation_notes(outcomes))
    for outcome in outcomes:
        line, ours, published = outcome.line, outcome.ours, outcome.line.published
        row = [preset_id, *(line.columns[column] for column in COLUMNS), *(line.extra.get(axis, "") for axis in axes)]
        row += [line.metric, *_numbers(ours.mean if ours else None, ours.std if ours else None)]
        row += [" ".join(_numbers(*ours.seeds)) if ours else ""]
        row += [str(ours.runs) if ours else "0", ours.bound if ours else ""]
        row += _numbers(published.mean if published else None, published.std if published else None, outcome.difference)
        lines.append([*row, "; ".join(filter(None, (outcome.note, *notes)))])
    return csv_text(header, lines)


def _deviation_notes(outcomes: Sequence[Outcome]) -> list[str]:
    """What ± means in these lines; nothing where none of our numbers has a deviation."""
    ours = [outcome.ours for outcome in outcomes if outcome.ours is not None]
    over = sorted({number.over for number in ours if number.deviation is not None})
    return [" or ".join(f"ours is mean ± {_DEVIATIONS[kind]}" for kind in over)] if over else []


def _heading(column: str) -> str:
    return column.rpartition(".")[2]


def _decimals(metric: str, value: float) -> int:
    """Digits worth showing: rounds are whole numbers unless they are a mean over seeds."""
    if metric.startswith(("rounds_to", "prototype")):
        return 0 if value == int(value) else 1
    return 1 if metric.startswith("speedup") else 2


def _ours(outcome: Outcome) -> str:
    if outcome.ours is None:
        return outcome.note
    number = outcome.ours.text(_decimals(outcome.line.metric, outcome.ours.mean))
    return number + (f" ({outcome.note})" if outcome.note else "")


def _paper(published: Published | None) -> str:
    return "–" if published is None else published.text


def _signed(outcome: Outcome) -> str:
    if outcome.difference is None:
        return "–"
    return f"{outcome.difference:+.{_decimals(outcome.line.metric, outcome.difference)}f}"


def _numbers(*values: float | None) -> list[str]:
    return ["" if value is None else f"{value:.6g}" for value in values]
