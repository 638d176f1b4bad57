"""What runs differ in, in the words of a paper: which groups share a line and which share a panel."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedblade.figures._specs import Part, variants
from fedblade.presets.names import method_in_papers, names_in_papers
from fedblade.results import (
    Group,
    count_configurations,
    differing_keys,
    distinguishing_keys,
    flat_settings,
    setting_number,
)

_KEYS = {"clients": "federation.num_clients", "cohort": "federation.clients_per_round", "epochs": "local.epochs"}
_SIGNS = {"clients": "K", "cohort": "m", "epochs": "E"}
_FACTS = ("method", "dataset", "split", "model", *_KEYS)
# Groups that differ in one of these never share a panel, unless it tells lines apart. The other facts separate panels
# only where groups would otherwise have the same line in the same panel.
_SEPARATE = ("method", "dataset", "split")
# They change which numbers were taken, or how fast, and not what was trained.
_ASIDE = ("seed", "seeds", "id", "checkpoint", "distributed", "engine", "device", "evaluation")


@dataclass(frozen=True)
class Placed:
    """A group with the name of its line, the title of its panel, and its value of the swept setting."""

    group: Group
    line: str
    panel: str
    x: float | None = None


def place(part: Part, groups: Sequence[Group]) -> list[Placed]:
    """The line and the panel of every group; lines and panels are in the order of the groups."""
    flat = [flat_settings(group.runs[0].config) for group in groups]
    kept = _with_usual_values(part.held, flat)
    groups, flat = [groups[index] for index in kept], [flat[index] for index in kept]
    facts = [_facts(group, config, part) for group, config in zip(groups, flat, strict=True)]
    _add_settings(facts, flat, part.x)
    line = _line_fact(part, facts)
    titled = _panel_facts(line, facts)
    return [
        Placed(
            group,
            known.get(line, ""),
            ", ".join(known[fact] for fact in titled if known[fact]),
            setting_number(config, part.x),
        )
        for group, config, known in zip(groups, flat, facts, strict=True)
    ]


_DIRICHLETS = {"dirichlet": "", "dirichlet_clients": ", client-wise", "dirichlet_groups": ", in groups"}


def split_name(flat: Mapping[str, str]) -> str:
    """A partition and its level: `α = 0.1`, `α = 0.1, client-wise`, `s = 10`, `IID`."""
    name = flat.get("partition.name", "?")
    match name:
        case "dirichlet" | "dirichlet_clients" | "dirichlet_groups":
            return f"α = {flat.get('partition.alpha', '?')}{_DIRICHLETS[name]}"
        case "pathological" | "labels":
            return f"{flat.get('partition.classes_per_client', '?')} classes per client"
        case "shards" | "stochastic_removal":
            removal = ", with removal" if name == "stochastic_removal" else ""
            return f"s = {flat.get('partition.shards_per_client', '?')}{removal}"
        case _:
            return "IID" if name == "iid" else name


def _facts(group: Group, flat: Mapping[str, str], part: Part) -> dict[str, str]:
    run, names = group.runs[0], names_in_papers()
    facts = {
        "method": _method(group.method, flat, part),
        "dataset": names["dataset"].get(run.part("dataset"), run.part("dataset")),
        "split": split_name({"partition.name": run.part("partition"), **flat}),
        "model": names["model"].get(run.part("model"), run.part("model")),
    }
    numbers = {fact: flat[key] for fact, key in _KEYS.items() if key in flat and key != part.x}
    return facts | {fact: f"{_SIGNS[fact]} = {numbers[fact]}" if fact in numbers else "" for fact in _KEYS}


def _method(method: str, flat: Mapping[str, str], part: Part) -> str:
    if not part.of_paper:
        return method
    for variant in variants():
        holds = all(flat.get(key) == value for key, value in variant.where.items())
        if method == variant.method and part.x not in variant.where and holds:
            return variant.label
    return part.names.get(method) or method_in_papers(method, " + ")


def _add_settings(facts: Sequence[dict[str, str]], flat: Sequence[Mapping[str, str]], x: str) -> None:
    """Add settings to the methods' names of groups that are alike in every fact: those in which the groups differ."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for index, known in enumerate(facts):
        alike.setdefault(tuple(known.values()), []).append(index)
    for indices in alike.values():
        plain = [{k: v for k, v in flat[i].items() if k != x and k.partition(".")[0] not in _ASIDE} for i in indices]
        keys = distinguishing_keys(plain, differing_keys(plain))
        for index, settings in zip(indices, plain, strict=True):
            pairs = [f"{_short_key(key, keys)}={settings[key]}" for key in keys if key in settings]
            facts[index]["method"] += f" ({', '.join(pairs)})" if pairs else ""


def _short_key(key: str, keys: Sequence[str]) -> str:
    """The last part of the key where no other key ends with it."""
    last = key.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in keys) == 1 else key


def _line_fact(part: Part, facts: Sequence[Mapping[str, str]]) -> str:
    """The fact that names lines."""
    if part.lines != "auto":
        return part.lines
    return next((fact for fact in _FACTS if len({known[fact] for known in facts}) > 1), "method")


def _panel_facts(line: str, facts: Sequence[Mapping[str, str]]) -> list[str]:
    """The facts that title panels: those in which groups differ, unless the facts before them tell the groups apart."""
    chosen = [fact for fact in _SEPARATE if fact != line and len({known[fact] for known in facts}) > 1]
    in_lines = [line] if line in _FACTS else []
    for fact in _FACTS:
        before = [*in_lines, *chosen]
        if fact not in (*chosen, line) and count_configurations(facts, [*before, fact]) > count_configurations(
            facts, before
        ):
            chosen.append(fact)
    return chosen


def _with_usual_values(keys: Sequence[str], flat: Sequence[Mapping[str, str]]) -> list[int]:
    """The configurations in which these settings have their most frequent value or are missing."""
    kept = list(range(len(flat)))
    for key in keys:
        values = [config[key] for config in flat if key in config]
        if values:
            usual = statistics.mode(values)
            kept = [index for index in kept if flat[index].get(key, usual) == usual]
    return kept
