"""How a number in the history is presented: its label, its unit, how to read it and its bounds. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """A named number that a metric writes in every round it is measured in.

    `label` is the heading of a chart or a column, `reading` a sentence that says what high and low values mean. `low`
    and `high` bound the values where they are bounded, so that axes need not be guessed.
    """

    name: str
    label: str
    unit: str = ""
    reading: str = ""
    low: float | None = None
    high: float | None = None
