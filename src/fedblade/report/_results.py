"""What a reader sees first: the accuracy over rounds beside the comparison table, and how sure its order is."""

from collections.abc import Sequence

from fedblade.charts import accuracy_chart
from fedblade.report._blocks import Block, Cell, Lead, Paragraph, SavedFile, Section, TableBlock, columns, lead_picture
from fedblade.report._selection import Selection, best_first
from fedblade.results import ComparisonRow, PairedDifference, comma_separated, comparison_table, differences_to_best

_NOT_EVALUATED = "No round has been evaluated yet, so there is nothing to draw."
_HEADINGS = ("method", "compared with", "difference, points", "95 % interval", "seeds in common")
_PAIRED = (
    "Runs with the same seed have the same split, initial weights and cohorts, so methods are compared seed by seed. "
    "The difference is the mean of these differences in accuracy, and its interval is Student's t interval. Where the "
    "interval leaves out 0, the difference is larger than what another choice of seeds would explain. Two seeds give "
    "a very wide interval, five a useful one. Each interval is for one pair: of twenty pairs without a difference, "
    "about one leaves out 0 by chance. The best method was chosen by the same numbers, so that its lead looks a little "
    "larger than it is."
)


def results(shown: Selection, rows: Sequence[ComparisonRow]) -> Section:
    """The chart of the accuracy and the comparison table with the best and the second best marked."""
    compared = comparison_table(rows, "page")
    body = [
        [Cell(**vars(cell), group=shown.place(index) if cell is cells[0] else None) for cell in cells]
        for index, cells in enumerate(compared.rows)
    ]
    order = best_first(rows) if shown.many else range(len(body))
    table = TableBlock("Comparison over seeds", compared.columns, [body[index] for index in order], tall=False)
    drawn = shown.of([accuracy_chart(shown.groups)])
    picture = lead_picture(drawn[0]) if drawn else None
    sentences = [drawn[0].reading if drawn else _NOT_EVALUATED, shown.sentence, *compared.notes]
    saved = SavedFile.of("results.csv", comma_separated(rows), "text/csv")
    blocks: list[Block] = [
        Lead(picture, table),
        Paragraph(" ".join(filter(None, sentences))),
        Paragraph("All numbers of the table in full: ", file=saved),
    ]
    return Section("results", "Results", blocks)


def certainty(shown: Selection, rows: Sequence[ComparisonRow]) -> list[Section]:
    """The differences to the best method with their intervals; nothing where no two groups share two seeds."""
    differences = differences_to_best(shown.groups, rows)
    order = best_first(rows) if shown.many else range(len(rows))
    pairs = ((shown.place(at), differences[at]) for at in order)
    body = [_cells(place, difference) for place, difference in pairs if difference is not None]
    if not body:
        return []
    table = TableBlock("Differences over seeds", columns(_HEADINGS, _HEADINGS[:2]), body, tall=not shown.many)
    return [Section("certainty", "How sure is the order?", [table, Paragraph(_PAIRED)])]


def _cells(place: int | None, difference: PairedDifference) -> list[Cell]:
    return [
        Cell(difference.label, group=place),
        Cell(difference.against),
        Cell(signed(difference.mean)),
        Cell(f"{signed(difference.low)} to {signed(difference.high)}"),
        Cell(str(difference.seeds)),
    ]


def signed(value: float) -> str:
    """A difference with its sign and two decimals."""
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text in ("+0.00", "−0.00") else text
