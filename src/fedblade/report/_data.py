"""Numbers for the page's script: compact, and safe inside HTML."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

_DIGITS = 4


def as_json(payload: Mapping[str, Any] | Sequence[Any]) -> Markup:
    """The payload as JSON for a block that a browser does not run.

    Only `<` can end such a block early, so it is written as an escape that JSON reads back.
    """
    return Markup(json.dumps(payload, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))  # noqa: S704


def shortened(values: Sequence[float | None], digits: int = _DIGITS) -> list[float | int | None]:
    """Every value to so many significant digits, None where there is no finite one."""
    return [_shortened(value, digits) for value in values]


def _shortened(value: float | None, digits: int) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short
