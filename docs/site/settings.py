"""Every setting of a configuration, with type, default, meaning and other names."""

from itertools import groupby

from docs.site.text import paragraphs, table
from fedblade.config.literals import literal
from fedblade.config.reference import Setting, fixed_settings, knob_settings

_INTRODUCTION = """\
# Settings

Every setting of a configuration, made from the schema; `fedblade list settings` prints the same. A setting is written
under its section in a TOML file, and as `--set section.key=value` on the command line. Where the last part of its name
is unique, the last part is enough: `--set rounds=12`. In Python a setting is an argument: `fedblade.run(rounds=12)`.
The other names are accepted wherever a short name is.

The sections `dataset`, `partition`, `participation`, `model` and `method` choose a part by its `name` and hold the
knobs of this part; the knobs are listed below, part by part. Knobs of methods are on the
[cards of the methods](methods/README.md) too.
"""


def settings_page() -> str:
    """The page of all settings."""
    fixed = [_block(f"## {name or 'Outside any section'}", rows) for name, rows in groupby(fixed_settings(), _section)]
    knobs = [_block(f"### {name}", rows) for name, rows in groupby(knob_settings(), _part)]
    return "\n\n".join((_INTRODUCTION, *fixed, "## Knobs of parts", *knobs))


def _section(setting: Setting) -> str:
    return setting.section


def _part(setting: Setting) -> str:
    return f"{setting.section} {setting.part}"


def _block(heading: str, rows) -> str:
    return f"{heading}\n\n{table(('setting', 'type', 'default', 'meaning'), map(_row, rows))}"


def _row(setting: Setting) -> tuple[str, str, str, str]:
    default = "" if setting.default is None else f"`{literal(setting.default)}`"
    aliases = f" Other names: {', '.join(f'`{alias}`' for alias in setting.aliases)}." if setting.aliases else ""
    return f"`{setting.name}`", paragraphs(setting.type), default, paragraphs(setting.meaning) + aliases
