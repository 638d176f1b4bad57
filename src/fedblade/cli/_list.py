"""`fedblade list`: the parts of the library by kind, and the presets."""

import json
from typing import Annotated

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
)


def list_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to list; the kinds are named above.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
) -> None:
    """List the parts of one kind: methods, losses, heads, models, datasets, partitions, participations, and so on.

    Further kinds are presets, metrics, engines and regularisers.
    """
    if kind not in KINDS:
        from fedblade.core.errors import Misconfigured, nearest

        raise Misconfigured(f"there is no kind '{kind}' to list.{nearest(kind, KINDS)}")
    rows = {"presets": _presets, "engines": _engines}.get(kind, lambda: _parts(kind))()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        typer.echo(f"{row['name']:<{width}}  {row['summary']}")


def _presets() -> list[dict[str, str]]:
    from fedblade.presets.catalogue import preset_names, preset_summary

    return [{"name": name, "summary": preset_summary(name)} for name in preset_names()]


def _engines() -> list[dict[str, str]]:
    from fedblade.runs import engine_summaries

    return [{"name": name, "summary": summary} for name, summary in engine_summaries().items()]


def _parts(kind: str) -> list[dict[str, str]]:
    from fedblade.core import registry

    parts: registry.Registry = getattr(registry, kind)
    return [{"name": entry.name, "summary": entry.summary, **entry.info} for entry in parts.entries()]
