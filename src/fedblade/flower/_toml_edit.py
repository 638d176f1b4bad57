"""Changes of an app's configuration file that leave everything else in it as it is, comments included."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

import tomli_w

from fedblade.core.errors import Misconfigured
from fedblade.flower.agreement import KEY
from fedblade.flower.app import TABLE

_BEGIN = "# Begin of what `fedblade flower agree` wrote. To change it, give that command again."
_END = "# End of what `fedblade flower agree` wrote."
# Both are whole lines: a text of a table may hold them, but TOML writes its line breaks as \n.
_BLOCK = re.compile(rf"\n*^{re.escape(_BEGIN)}$.*?^{re.escape(_END)}$\n?", re.DOTALL | re.MULTILINE)
_HEADER = re.compile(rf"^[ \t]*\[[ \t]*{TABLE}[ \t]*\][ \t]*(#.*)?$", re.MULTILINE)
_ANY_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def without_block(text: str) -> str:
    """The text without the block that `with_agreement` wrote."""
    return _BLOCK.sub("\n", text)


def with_agreement(text: str, path: object, keys: Mapping[str, Any], agreement: Mapping[str, Any]) -> str:
    """The text with other values of some `keys` of the table `flower`, and with an agreement as a block at its end."""
    old = without_block(text)
    tables = tomllib.loads(old)
    expected = tables | {TABLE: {**tables.get(TABLE, {}), **keys, KEY: dict(agreement)}}
    new = old if TABLE in tables else f"{old.rstrip()}\n\n[{TABLE}]\n"
    for key, value in keys.items():
        if tables.get(TABLE, {}).get(key) != value:
            new = _with_key(new, key, tomli_w.dumps({key: value}).strip())
    block = tomli_w.dumps({TABLE: {KEY: dict(agreement)}}).strip()
    new = f"{new.rstrip()}\n\n{_BEGIN}\n{block}\n{_END}\n"
    try:
        as_expected = tomllib.loads(new) == expected
    except tomllib.TOMLDecodeError:
        as_expected = False
    if not as_expected:
        raise Misconfigured(
            f"'{path}' has the table '{TABLE}' in a form that is not edited; expected a section [{TABLE}] with a line "
            f"for each key, and no '{KEY}' in it. Rewrite the table, with {_as_text(keys)}."
        )
    return new


def _with_key(text: str, key: str, line: str) -> str:
    """The text with the value of a key of `flower` replaced, or with a line for the key below the section's header."""
    value = line.partition("=")[2].strip()
    dotted = rf"{TABLE}[ \t]*\.[ \t]*{key}"
    if (new := _with_value(text, dotted, value)) is not None:
        return new
    header = _HEADER.search(text)
    if header is None:
        return text
    following = _ANY_HEADER.search(text, header.end())
    end = len(text) if following is None else following.start()
    section = text[header.end() : end]
    return text[: header.end()] + (_with_value(section, key, value) or f"\n{line}{section}") + text[end:]


def _with_value(text: str, key: str, value: str) -> str | None:
    """The text with another value in the line of a key; None if there is no such line."""
    line = re.compile(rf"^(?P<before>[ \t]*{key}[ \t]*=[ \t]*)[^#\n]*?(?P<after>[ \t]*(?:#.*)?)$", re.MULTILINE)
    new, count = line.subn(lambda found: f"{found['before']}{value}{found['after']}", text, count=1)
    return new if count else None


def _as_text(keys: Mapping[str, Any]) -> str:
    return ", ".join(tomli_w.dumps({key: value}).strip() for key, value in keys.items())
