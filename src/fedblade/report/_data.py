"""Numbers for the page's script: compact, and safe inside HTML."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

_DIGITS = 4


def embed(payload: Mapping[str, Any] | Sequence[Any], *, name: str | None = None) -> str:
    """The payload as a block of JSON that a browser does not run.

    Only `<` can end such a block early, so it is written as an escape that JSON reads back.
    """
    written = json.dumps(payload, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    label = f' id="{name}"' if name else ' class="data"'
    return f'<script type="application/json"{label}>{written}</script>'


def brief(value: float | None, digits: int = _DIGITS) -> float | int | None:
    """The value to so many significant digits, None where there is no finite one."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short


def briefly(values: Sequence[float | None], digits: int = _DIGITS) -> list[float | int | None]:
    """Every value to so many significant digits."""
    return [brief(value, digits) for value in values]
