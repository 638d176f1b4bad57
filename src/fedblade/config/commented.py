"""A configuration as a file for people: every key with its default written out, and its meaning above it."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedblade.config.literals import entry
from fedblade.config.reference import Setting, fixed_settings, settings_of
from fedblade.config.run_config import RunConfig
from fedblade.config.schema import ORDER
from fedblade.core.nested import dotted

_WIDTH = 100
_HEADING = """\
# A complete configuration of fedblade. `fedblade run FILE.toml` runs it; --set changes single keys.
# A line that is left out has the default of `fedblade list settings`.
# The knobs of a part, such as those under [method], belong to the name above them."""

_SEEDS = "# The seeds of `fedblade compare`, `sweep` and `reproduce`."


def commented_toml(config: RunConfig, seeds: Sequence[int] = ()) -> str:
    """The text of a file that gives this configuration again, and the `seeds` of comparisons."""
    tables = config.table()
    known = {setting.name: setting for setting in (*fixed_settings(), *settings_of(config))}
    general = _block({key: value for key, value in tables.items() if key not in ORDER}, "", known)
    repeated = list(seeds) not in ([], [config.general.seed])
    blocks = [_HEADING, general, *([f"{_SEEDS}\n{entry('seeds', list(seeds))}"] if repeated else [])]
    blocks += [f"[{name}]\n{_block(tables[name], name, known)}" for name in ORDER]
    return "\n\n".join(blocks) + "\n"


def _block(table: Mapping[str, Any], section: str, known: Mapping[str, Setting]) -> str:
    """The lines of a section. A knob that is a table is one line, with the meanings of its keys above it."""
    lines: list[str] = []
    for key, value in table.items():
        path = f"{section}.{key}" if section else key
        lines += [line for inner in dotted({key: value}) for line in _comment(path, key, inner, known)]
        lines.append(entry(key, value))
    return "\n".join(lines)


def _comment(path: str, key: str, inner: str, known: Mapping[str, Setting]) -> Iterator[str]:
    """The meaning and the type of a setting, as comments."""
    setting = known.get(path + inner.removeprefix(key))
    if setting is None:
        return
    name = "" if inner == key else f"{inner.removeprefix(f'{key}.')}: "
    text = f"{name}{setting.meaning} ({setting.type})"
    yield from textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
