"""`fedblade list`: the parts of the library by kind, and the presets."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

KINDS = (
    "methods",
    "losses",
    "heads",
    "models",
    "datasets",
    "partitions",
    "participations",
    "presets",
    "metrics",
    "engines",
    "regularisers",
    "settings",
)
_WIDTH = 100


def list_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to list; the kinds are named above.")],
    word: Annotated[str, typer.Argument(metavar="[WORD]", help="List only what has this word in its line.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
) -> None:
    """List the parts of one kind, each with a sentence.

    The kinds are methods, losses, heads, models, datasets, partitions, participations, metrics, engines, regularisers,
    presets and settings, which are the keys of a configuration.
    """
    if kind not in KINDS:
        from fedblade.core.errors import Misconfigured, nearest

        raise Misconfigured(f"there is no kind '{kind}' to list.{nearest(kind, KINDS)}")
    rows = {"presets": _presets, "engines": _engines, "settings": _settings}.get(kind, lambda: _parts(kind))()
    chosen = [row for row in rows if any(word.lower() in str(value).lower() for value in row.values())]
    if word and not chosen:
        from fedblade.core.errors import Misconfigured

        raise Misconfigured(f"no line of `fedblade list {kind}` has the word '{word}'. Try a part of the word.")
    if as_json:
        typer.echo(json.dumps(chosen, indent=2, ensure_ascii=False))
    elif kind == "settings":
        from fedblade.cli._list import settings_text

        typer.echo(settings_text(chosen))
    else:
        width = max((len(row["name"]) for row in chosen), default=0)
        for row in chosen:
            typer.echo(f"{row['name']:<{width}}  {row['summary']}")


def settings_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Settings by section, and the knobs of parts by part: the key with its default, then type, meaning and aliases."""
    blocks = []
    for (section, part), group in groupby(rows, key=lambda row: (row["section"], row["part"])):
        heading = f"knobs of {section} {part}" if part else f"[{section}]" if section else "outside any section"
        blocks.append("\n".join((heading, *(_lines(row) for row in group))))
    return "\n\n".join(blocks)


def _settings() -> list[dict[str, Any]]:
    from dataclasses import asdict

    from fedblade.config.reference import all_settings

    return [asdict(setting) for setting in all_settings()]


def _presets() -> list[dict[str, Any]]:
    from fedblade.presets.catalogue import preset_names, preset_summary

    return [{"name": name, "summary": preset_summary(name)} for name in preset_names()]


def _engines() -> list[dict[str, Any]]:
    from fedblade.runs import engine_summaries

    return [{"name": name, "summary": summary} for name, summary in engine_summaries().items()]


def _parts(kind: str) -> list[dict[str, Any]]:
    from fedblade.core import registry

    parts: registry.Registry = getattr(registry, kind)
    return [{"name": entry.name, "summary": entry.summary, **entry.info} for entry in parts.entries()]


def _lines(row: Mapping[str, Any]) -> str:
    from fedblade.config.literals import literal

    default = "" if row["default"] is None else f" = {literal(row['default'])}"
    aliases = f" Also called {', '.join(row['aliases'])}." if row["aliases"] else ""
    body = f"{row['meaning']}{aliases} ({row['type']})"
    indent = "      "
    return "\n".join(
        (
            f"  {row['name']}{default}",
            *textwrap.wrap(body, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False),
        )
    )
