"""Cards of the parts that have a name: metrics, partitions, participations, models, data sets, heads, losses."""

import inspect
from collections.abc import Iterator

from docs.site.text import anchored, paragraphs, table
from fedblade.config.literals import literal
from fedblade.config.reference import knob_settings
from fedblade.core import registry
from fedblade.core.metric import Metric
from fedblade.core.registry import Entry

KINDS = {
    "metrics": (
        "What a run can measure. `--set metrics=accuracy,nc1` chooses; [the life of a run](explain-life-of-a-run.md)"
        " says when each is measured."
    ),
    "partitions": (
        "Who holds which samples: `--set partition=NAME`. `fedblade partition` shows the split that a partition gives."
    ),
    "participations": (
        "Who trains in a round: `--set participation=NAME`. See [who takes part](how-to-participation.md)."
    ),
    "models": "Backbones: `--set model=NAME`. [Your own model](how-to-own-models.md) goes in as a module or a file.",
    "datasets": (
        "Data that can be named: `--set dataset=NAME`. `fedblade data NAME` finds and checks the files; nothing is "
        "downloaded without `--download`. [Your own data](how-to-own-data.md) go in as arrays or files."
    ),
    "heads": "Classifiers: what a method puts on the features. `fedblade show METHOD` says which head a method has.",
    "losses": (
        "Terms of the local loss. Each is a class in `fedblade.losses`, and most are functions for a loop of your "
        "own: [the Python names](reference-python-losses.md)."
    ),
    "regularisers": "What `method+name` adds to a method: `--set method=fedavg+feddecorr`.",
}
_TITLES = {"datasets": "Data sets", "participations": "Participations (who takes part)"}


def part_page(kind: str) -> str:
    """The page of one kind: a card for each part."""
    entries: list[Entry] = getattr(registry, kind).entries()
    title = _TITLES.get(kind, kind.capitalize())
    head = f"# {title}\n\n{KINDS[kind]} `fedblade list {kind}` prints the names. This page is made from the code.\n"
    return "\n\n".join((head, *(_card(kind, entry) for entry in entries if _is_ours(entry))))


def _is_ours(entry: Entry) -> bool:
    return entry.make.__module__.startswith("fedblade.")


def _card(kind: str, entry: Entry) -> str:
    parts = [f"## {entry.name}", paragraphs(inspect.getdoc(entry.make) or "")]
    if "paper" in entry.info:
        parts.append(f"Paper: {anchored(entry.info['paper'])}.")
    parts += list(_knobs(kind, entry))
    if kind == "metrics":
        parts += list(_fields(entry.make()))
    return "\n\n".join(parts)


def _knobs(kind: str, entry: Entry) -> Iterator[str]:
    """The knobs with type, default and meaning; parts that no configuration names, such as heads, have none here."""
    name = f"+{entry.name}" if kind == "regularisers" else entry.name
    section = {"regularisers": "method"}.get(kind, kind.removesuffix("s"))
    rows = [
        (f"`{each.name}`", each.type, f"`{literal(each.default)}`", each.meaning)
        for each in knob_settings()
        if (each.section, each.part) == (section, name)
    ]
    if rows:
        yield table(("knob", "type", "default", "meaning"), rows)


def _fields(metric: Metric) -> Iterator[str]:
    """The numbers that the metric writes, and how to read them."""
    if metric.fields:
        rows = [(f"`{each.name}`", each.label, each.unit, each.reading) for each in metric.fields]
        yield table(("number", "label", "unit", "how to read it"), rows)
