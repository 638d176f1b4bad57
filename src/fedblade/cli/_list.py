"""`fedblade list`: what there is."""

import json
from enum import StrEnum
from typing import Annotated

import typer


class Kind(StrEnum):
    """Kinds of parts."""

    METHODS = "methods"
    LOSSES = "losses"
    HEADS = "heads"
    MODELS = "models"
    DATASETS = "datasets"
    PARTITIONS = "partitions"
    PRESETS = "presets"
    METRICS = "metrics"
    ENGINES = "engines"
    REGULARISERS = "regularisers"


def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
) -> None:
    """List methods, losses, heads, models, datasets, partitions, presets, metrics, engines or regularisers."""
    rows = _presets() if kind is Kind.PRESETS else _parts(kind)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        typer.echo(f"{row['name']:<{width}}  {row['summary']}")


def _presets() -> list[dict[str, str]]:
    from fedblade.experiment._presets import preset_names, preset_summary

    return [{"name": name, "summary": preset_summary(name)} for name in preset_names()]


def _parts(kind: Kind) -> list[dict[str, str]]:
    from fedblade.core import registry

    found: registry.Registry = getattr(registry, kind.value)
    return [{"name": entry.name, "summary": entry.summary, **entry.info} for entry in found.entries()]
