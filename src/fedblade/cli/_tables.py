"""Tables in the terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from fedblade import results


def drawn_table(table: "results.Table") -> "Table":
    """A table for the terminal: the best number has a star, notes are below."""
    from rich.table import Table

    drawn = Table(show_edge=False, pad_edge=False, caption="\n".join(table.notes) or None, caption_justify="left")
    for column in table.columns:
        drawn.add_column(
            column.heading,
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
            overflow="fold",
        )
    for row in table.rows:
        drawn.add_row(*map(_text, row))
    return drawn


def _text(cell: "results.TableCell") -> str:
    return ("* " if cell.rank == 1 else "") + " ".join(filter(None, (cell.text, cell.spread))) + cell.mark
