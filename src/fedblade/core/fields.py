"""How a number in the history is presented: its label, its unit, how to read it and its bounds. Imports no torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal


@dataclass(frozen=True)
class Field:
    """A named number that a metric writes in every round it is measured in.

    `label` is the heading of a chart, `unit` the text at its axis, and `reading` a sentence that says what high and low
    values mean. `low` and `high` bound the values where they are bounded, so that axes need not be guessed. `short`
    is the label for narrow places, `variant` tells fields with the same `short` apart. `number_format` prints a value.
    `subject` says what is measured: the model, or what clients send after their local training. Fields that are not
    `main` come later, and a page may fold them away.
    """

    name: str
    label: str
    unit: str = ""
    reading: str = ""
    low: float | None = None
    high: float | None = None
    short: str = ""
    variant: str = ""
    number_format: str = ".3g"
    subject: Literal["model", "clients"] = "model"
    main: bool = True

    @property
    def short_label(self) -> str:
        """The label for a narrow place, such as a line in the terminal."""
        return ", ".join(filter(None, (self.short or self.label, self.variant)))

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The lowest and the highest possible value, None where either is open."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def description(self) -> dict[str, Any]:
        """All but the name, as plain values for a file; what has its default is left out."""
        defaults = {entry.name: entry.default for entry in fields(self)}
        return {key: value for key, value in asdict(self).items() if key != "name" and value != defaults[key]}


def undescribed(name: str) -> Field:
    """The field of a number that no metric describes: its label is its name in words."""
    return Field(name, name.replace("_", " ").strip() or name)


def restored(name: str, description: object) -> Field | None:
    """A field from its stored description, None where that is broken; keys of later versions are ignored."""
    if not isinstance(description, Mapping):
        return None
    known = {entry.name for entry in fields(Field)} - {"name"}
    given = {key: value for key, value in description.items() if key in known}
    if not all(_fits(key, value) for key, value in given.items()) or "label" not in given:
        return None
    return Field(name, **given)


def _fits(key: str, value: object) -> bool:
    """Whether a stored value is of the kind that its key has."""
    if key in ("low", "high"):
        return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    if key == "main":
        return isinstance(value, bool)
    if key == "subject":
        return value in ("model", "clients")
    return isinstance(value, str) and (key != "number_format" or _prints(value))


def _prints(number_format: str) -> bool:
    try:
        format(1.0, number_format)
    except ValueError:
        return False
    return True
