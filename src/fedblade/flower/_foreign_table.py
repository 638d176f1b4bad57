"""A table in a file that another person wrote: every field is checked before it is used."""

import math
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.untrusted_text import short_repr

LARGEST_COUNT = 2**40
LONGEST_TEXT = 1000
_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that show the text around them in another order."""
_LARGEST_LABEL = 2**63 - 1


class ForeignTable:
    """A table with known keys. `where` names it in errors, which end with `advice`."""

    def __init__(self, given: object, where: str, advice: str, keys: Collection[str]) -> None:
        self.where, self.advice = where, advice
        if not isinstance(given, Mapping):
            raise self.refusal(f"is {short_repr(given)}", "a table")
        self._given: Mapping[str, Any] = given
        for key in given:
            if key not in keys:
                raise self.refusal(f"has the unknown key {short_repr(key)}", ", ".join(keys))

    def __contains__(self, key: str) -> bool:
        return key in self._given

    def refusal(self, found: str, expected: str) -> Misconfigured:
        """The error for this table."""
        return Misconfigured(f"{self.where} {found}; expected {expected}. {self.advice}")

    def raw(self, key: str) -> Any:
        """A field as it is; it must be there."""
        if key not in self._given:
            raise Misconfigured(f"{self.where} has no '{key}'. {self.advice}")
        return self._given[key]

    def wrong(self, key: str, expected: str) -> Misconfigured:
        """The error for a field."""
        return self.refusal(f"has {key} = {short_repr(self._given.get(key))}", expected)

    def whole(self, key: str, low: int = 0, high: int = LARGEST_COUNT) -> int:
        """A whole number."""
        value = self.raw(key)
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(key, f"a whole number from {low} to {high}")
        return value

    def number(self, key: str) -> float:
        """A finite number."""
        value = self.raw(key)
        if type(value) not in (int, float) or (type(value) is int and abs(value) > 2**63) or not math.isfinite(value):
            raise self.wrong(key, "a finite number")
        return float(value)

    def truth(self, key: str) -> bool:
        """True or false."""
        value = self.raw(key)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str) -> str:
        """A text without characters that act on a terminal."""
        value = self.raw(key)
        if not is_plain_text(value):
            raise self.wrong(key, f"a text of 1 to {LONGEST_TEXT} printable characters")
        return str(value)

    def texts(self, key: str, most: int) -> tuple[str, ...]:
        """Different texts."""
        values = self._list(key, most)
        wrong = next((value for value in values if not is_plain_text(value)), None)
        if wrong is not None or len(set(map(str, values))) < len(values):
            raise self.wrong(key, f"different texts of 1 to {LONGEST_TEXT} printable characters")
        return tuple(values)

    def ascending_texts(self, key: str, most: int) -> tuple[str, ...]:
        """Different texts in sorted order."""
        values = self.texts(key, most)
        if list(values) != sorted(values):
            raise self.wrong(key, "texts in sorted order")
        return values

    def labels(self, key: str, most: int) -> tuple[int, ...] | tuple[str, ...]:
        """At least one label: whole numbers or names, in ascending order."""
        values = self._list(key, most)
        if values and all(type(value) is int and abs(value) <= _LARGEST_LABEL for value in values):
            if values != sorted(set(values)):
                raise self.wrong(key, "different numbers in ascending order")
            return tuple(values)
        if not values or not all(isinstance(value, str) for value in values):
            raise self.wrong(key, "labels: all whole numbers, or all names")
        return self.ascending_texts(key, most)

    def _list(self, key: str, most: int) -> list[Any]:
        value = self.raw(key)
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(key, f"a list of at most {most:,} entries")
        return value


def is_plain_text(value: object) -> bool:
    """Whether a value is a text of a bearable length, without characters that act on a terminal or hide others."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT:
        return False
    return not any(
        letter in _REORDERING or (unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\t\n\r")
        for letter in value
    )
