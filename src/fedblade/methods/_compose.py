"""Method names and what they mean: a base method, and regularisers added with `+`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.registry import Entry, methods, regularisers


@dataclass(frozen=True)
class Composition:
    """A base method and the regularisers added to it, in order.

    The knobs of the base are written flat, those of a regulariser in a table of its name.
    """

    name: str
    base: Entry
    added: tuple[Entry, ...]

    def build(self, knobs: Mapping[str, Any]) -> Method:
        """The method value for checked knobs."""
        tables = {entry.name for entry in self.added}
        method: Any = self.base.make(**{key: value for key, value in knobs.items() if key not in tables})
        if not isinstance(method, Method):
            raise Misconfigured(
                f"method '{self.base.name}' returned a {type(method).__name__}; expected a fedblade.core.method.Method."
            )
        for entry in self.added:
            method = entry.make(**knobs.get(entry.name, {}))(method)
        made: Method = method
        return made


def compose(name: str) -> Composition:
    """Read a method name such as `fedavg`, `fedprox+feddecorr` or `my_file.py:my_method+feddecorr`."""
    place, colon, parts = name.rpartition(":")
    base, *added = parts.split("+")
    if "" in added or len(set(added)) < len(added):
        raise Misconfigured(f"method '{name}' adds nothing or the same thing twice; expected a+b with different parts.")
    return Composition(name, methods.get(place + colon + base), tuple(regularisers.get(each) for each in added))
