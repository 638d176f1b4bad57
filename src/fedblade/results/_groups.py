"""Gather runs that differ only in their seed, and give each gathering a label of its own."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedblade.core.nested import dotted
from fedblade.results._order import Key, place
from fedblade.results._record import Round, RunRecord

# Keys that do not change what a run computes, only which repetition it is and how it is kept.
_BOOKKEEPING = ("seed", "seeds", "id", "checkpoint", "distributed")
# Results are ranked only against results that share these sections.
_SETTING = ("dataset", "partition", "federation", "model")
_LABEL_KEYS = 3


@dataclass(frozen=True)
class Curve:
    """Mean over seeds with the range from lowest to highest, on the rounds (or other places) all seeds share."""

    rounds: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Group:
    """Runs of one method with one configuration, sorted by seed."""

    label: str
    runs: tuple[RunRecord, ...]

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.runs[0].part("method")

    @property
    def personal(self) -> bool:
        """Whether there is no global model, so that what is measured of it is a mean over clients' own models."""
        return self.runs[0].accuracy_of == "personal"

    @property
    def finished(self) -> int:
        """How many of the runs are finished."""
        return sum(run.finished for run in self.runs)

    @property
    def counted(self) -> tuple[RunRecord, ...]:
        """Runs that enter means and curves: the finished ones, or all while none is."""
        return tuple(run for run in self.runs if run.finished) or self.runs

    @property
    def flags(self) -> tuple[str, ...]:
        """What its runs warn of themselves, each with its seed."""
        return tuple(f"{flag} (seed {run.seed})" for run in self.runs for flag in run.flags)

    @property
    def setting(self) -> tuple[tuple[str, str], ...]:
        """What must agree before two groups may be ranked against each other."""
        run = self.runs[0]
        flat = flatten({name: run.config[name] for name in _SETTING if name in run.config})
        named = [(kind, run.part(kind)) for kind in ("dataset", "partition", "model")]
        return (*named, *sorted(flat.items()))

    def curve(self, value: Callable[[Round], float | None]) -> Curve | None:
        """Course of `value` over rounds, or None when no round has one."""
        per_run = [{r.number: v for r in run.history if (v := value(r)) is not None} for run in self.counted]
        per_run = [values for values in per_run if values]
        shared = sorted(set.intersection(*(set(values) for values in per_run))) if per_run else []
        if not shared:
            return None
        columns = [[values[index] for values in per_run] for index in shared]
        return Curve(
            tuple(shared),
            tuple(map(statistics.fmean, columns)),
            tuple(map(min, columns)),
            tuple(map(max, columns)),
        )


def flatten(config: Mapping[str, Any]) -> dict[str, str]:
    """Dotted keys and printable values of a nested configuration, in file order."""
    return {key: _show(value) for key, value in dotted(config).items()}


def group_runs(runs: Sequence[RunRecord]) -> list[Group]:
    """Groups in the order of `_order`, whatever order the runs come in, with labels that tell them apart."""
    gathered: dict[tuple[tuple[str, str], ...], list[RunRecord]] = {}
    for run in runs:
        gathered.setdefault(_identity(run), []).append(run)
    members = sorted((tuple(sorted(found, key=_seed_order)) for found in gathered.values()), key=_group_order)
    return [Group(label, found) for label, found in zip(_labels(members), members, strict=True)]


def differing_keys(configs: Sequence[Mapping[str, str]]) -> list[str]:
    """Keys that are absent from, or differ between, some of the flat configurations."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({config.get(key) for config in configs}) > 1]


def telling_keys(configs: Sequence[Mapping[str, str]], keys: Sequence[str]) -> list[str]:
    """A few of the keys where these tell as many configurations apart as all do, or else each that tells more apart.

    Keys that some configuration lacks count only where the others do not suffice: older runs lack newer settings.
    """
    enough = count_distinct(configs, keys)
    common = [key for key in keys if all(key in config for config in configs)]
    keys = common if count_distinct(configs, common) == enough else keys
    few = list(keys[:_LABEL_KEYS])
    if count_distinct(configs, few) == enough:
        return few
    needed: list[str] = []
    for key in keys:
        if count_distinct(configs, [*needed, key]) > count_distinct(configs, needed):
            needed.append(key)
    return needed


def count_distinct(configs: Sequence[Mapping[str, str]], keys: Sequence[str]) -> int:
    """How many configurations there are that differ in these keys."""
    return len({tuple(config.get(key) for key in keys) for config in configs})


def _is_bookkeeping(key: str) -> bool:
    """Whether a dotted key may differ between runs of one group."""
    return key.partition(".")[0] in _BOOKKEEPING


def _identity(run: RunRecord) -> tuple[tuple[str, str], ...]:
    flat = {key: text for key, text in flatten(run.config).items() if not _is_bookkeeping(key)}
    named = [(kind, run.part(kind)) for kind in ("method", "dataset", "partition", "model")]
    return (*named, *sorted(flat.items()))


def _group_order(members: Sequence[RunRecord]) -> Key:
    return place(
        members[0], {key: text for key, text in flatten(members[0].config).items() if not _is_bookkeeping(key)}
    )


def _seed_order(run: RunRecord) -> tuple[bool, int, str]:
    return (run.seed is None, run.seed or 0, str(run.path))


def _labels(members: Sequence[tuple[RunRecord, ...]]) -> list[str]:
    """The method's name, with the keys in which groups of the same method differ."""
    methods = [found[0].part("method") for found in members]
    labels = []
    for found, method in zip(members, methods, strict=True):
        rivals = [_distinct(other[0]) for other, name in zip(members, methods, strict=True) if name == method]
        keys = _without_foreign(rivals, sorted(differing_keys(rivals), key=lambda key: not key.endswith(".name")))
        labels.append(_label(method, _distinct(found[0]), telling_keys(rivals, keys)))
    return labels


def _without_foreign(configs: Sequence[Mapping[str, str]], keys: Sequence[str]) -> list[str]:
    """The keys without knobs that only some parts of a kind have, where the names of the parts and the rest suffice."""
    named = {key.removesuffix(".name") for key in keys if key.endswith(".name")}
    own = [key for key in keys if key.partition(".")[0] not in named or all(key in config for config in configs)]
    return own if count_distinct(configs, own) == count_distinct(configs, keys) else list(keys)


def _distinct(run: RunRecord) -> dict[str, str]:
    named = {f"{kind}.name": run.part(kind) for kind in ("dataset", "partition", "model")}
    return named | {key: text for key, text in flatten(run.config).items() if not _is_bookkeeping(key)}


def _label(method: str, own: Mapping[str, str], keys: Sequence[str]) -> str:
    if not keys:
        return method
    # A part of another name has other knobs: that it lacks this one tells nothing.
    told = [key for key in keys if key in own or f"{key.partition('.')[0]}.name" not in keys]
    pairs = [f"{_short(key, own)}={own.get(key, 'unset')}" for key in told]
    return f"{method} ({', '.join(pairs)})"


def _short(key: str, config: Mapping[str, str]) -> str:
    """The section for a `name`, the last part where that is unique, the full path otherwise."""
    section, _, last = key.rpartition(".")
    if last == "name":
        return section
    return last if sum(other.rpartition(".")[2] == last for other in config) <= 1 else key


def _show(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
