"""Puts runs that differ only in their seed into groups, and gives every group a label."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedblade.core.nested import dotted
from fedblade.results._format import short_names
from fedblade.results._group_order import sort_key
from fedblade.results._record import RunRecord

# These settings do not change what a run computes, only its seed and how the run is stored.
_BOOKKEEPING = ("seed", "seeds", "id", "checkpoint", "distributed")
# Only groups that agree in these sections are ranked against each other.
_SETTING = ("dataset", "partition", "federation", "model")
_LABEL_KEYS = 3
_LONGEST_VALUE = 24


@dataclass(frozen=True)
class Group:
    """Runs of one method with one configuration, sorted by seed."""

    label: str
    runs: tuple[RunRecord, ...]
    method: str
    """The name of the method, without the path of a method of the user's own."""

    @property
    def personal(self) -> bool:
        """Whether the method has no global model, so that its numbers are means over the personal models."""
        return self.runs[0].accuracy_of == "personal"

    @property
    def finished(self) -> int:
        """How many of the runs are finished."""
        return sum(run.finished for run in self.runs)

    @cached_property
    def counted(self) -> tuple[RunRecord, ...]:
        """The runs that means and curves are made from: the finished ones, or all runs while none is finished."""
        return tuple(run for run in self.runs if run.finished) or self.runs

    @property
    def flags(self) -> tuple[str, ...]:
        """The warnings in the summaries of the runs, with the seed of the run."""
        return tuple(f"{flag} (seed {run.seed})" for run in self.runs for flag in run.flags)

    @cached_property
    def setting(self) -> tuple[tuple[str, str], ...]:
        """Data, partition, federation and model, without which two accuracies cannot be compared."""
        run = self.runs[0]
        settings = flat_settings({name: run.config[name] for name in _SETTING if name in run.config})
        names = [(kind, run.part(kind)) for kind in ("dataset", "partition", "model")]
        return (*names, *sorted(settings.items()))

    @property
    def on_validation(self) -> bool:
        """Whether accuracies were measured on samples held out of the training data, and not on the test set."""
        return self.runs[0].on_validation

    @property
    def ranked_among(self) -> tuple[object, ...]:
        """What two groups must share before they are ranked against each other."""
        return (self.on_validation, self.setting)


def flat_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a nested configuration by their dotted keys, with values as text, in the order of the file."""
    return {key: _as_text(value) for key, value in dotted(config).items()}


def group_runs(runs: Sequence[RunRecord]) -> list[Group]:
    """The groups of these runs, with labels that tell them apart; their order does not depend on that of the runs."""
    by_identity: dict[tuple[tuple[str, str], ...], list[RunRecord]] = {}
    for run in runs:
        by_identity.setdefault(_identity(run), []).append(run)
    by_seed = (
        tuple(sorted(alike, key=lambda run: (run.seed is None, run.seed or 0, str(run.path))))
        for alike in by_identity.values()
    )
    groups = sorted(by_seed, key=lambda alike: sort_key(alike[0], _settings(alike[0])))
    short = short_names([runs[0].part("method") for runs in groups])
    methods = [short[runs[0].part("method")] for runs in groups]
    labels = _labels(groups, methods)
    return [Group(label, alike, method) for label, alike, method in zip(labels, groups, methods, strict=True)]


def differing_keys(configs: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys whose values are not the same in all of the flat configurations."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({config.get(key) for config in configs}) > 1]


def distinguishing_keys(configs: Sequence[Mapping[str, str]], keys: Sequence[str]) -> list[str]:
    """A small choice of the keys that still tells the same configurations apart as all keys do.

    The first few keys are taken if they suffice; otherwise every key that tells more configurations apart. Keys that
    some configuration lacks are left out if the others suffice, because older runs lack newer settings.
    """
    enough = count_configurations(configs, keys)
    common = [key for key in keys if all(key in config for config in configs)]
    keys = common if count_configurations(configs, common) == enough else keys
    few = list(keys[:_LABEL_KEYS])
    if count_configurations(configs, few) == enough:
        return few
    needed: list[str] = []
    for key in keys:
        if count_configurations(configs, [*needed, key]) > count_configurations(configs, needed):
            needed.append(key)
    return needed


def count_configurations(configs: Sequence[Mapping[str, str]], keys: Sequence[str]) -> int:
    """How many different configurations there are when only these keys are looked at."""
    return len({tuple(config.get(key) for key in keys) for config in configs})


def _settings(run: RunRecord) -> dict[str, str]:
    """The settings of a run that all runs of its group share."""
    return {key: text for key, text in flat_settings(run.config).items() if key.partition(".")[0] not in _BOOKKEEPING}


def _identity(run: RunRecord) -> tuple[tuple[str, str], ...]:
    names = [(kind, run.part(kind)) for kind in ("method", "dataset", "partition", "model")]
    return (*names, *sorted(_settings(run).items()))


def _labels(groups: Sequence[tuple[RunRecord, ...]], methods: Sequence[str]) -> list[str]:
    """The name of the method, with the settings in which groups of the same method differ."""
    settings = [_named_settings(runs[0]) for runs in groups]
    alike: dict[str, list[dict[str, str]]] = {}
    for method, its_settings in zip(methods, settings, strict=True):
        alike.setdefault(method, []).append(its_settings)
    keys = {method: _label_keys(configs) for method, configs in alike.items()}
    full = [_label(method, own, keys[method]) for method, own in zip(methods, settings, strict=True)]
    short = [_label(method, own, keys[method], _shortened) for method, own in zip(methods, settings, strict=True)]
    uses = Counter(short)
    return [brief if uses[brief] == 1 else whole for brief, whole in zip(short, full, strict=True)]


def _label_keys(configs: Sequence[Mapping[str, str]]) -> list[str]:
    """The settings that tell the groups of one method apart, names of parts first."""
    keys = sorted(differing_keys(configs), key=lambda key: not key.endswith(".name"))
    return distinguishing_keys(configs, _without_foreign(configs, keys))


def _without_foreign(configs: Sequence[Mapping[str, str]], keys: Sequence[str]) -> list[str]:
    """The keys without the knobs that only some data sets, partitions or models have.

    All keys stay where the names of these parts and the other keys do not tell the configurations apart.
    """
    named = {key.removesuffix(".name") for key in keys if key.endswith(".name")}
    common = [key for key in keys if key.partition(".")[0] not in named or all(key in config for config in configs)]
    return common if count_configurations(configs, common) == count_configurations(configs, keys) else list(keys)


def _named_settings(run: RunRecord) -> dict[str, str]:
    """The settings of a run, with the names of its data set, partition and model in any case."""
    return {f"{kind}.name": run.part(kind) for kind in ("dataset", "partition", "model")} | _settings(run)


def _label(method: str, settings: Mapping[str, str], keys: Sequence[str], printed: Callable[[str], str] = str) -> str:
    if not keys:
        return method
    # A part of another name has other knobs: that it lacks this knob says nothing.
    shown = [key for key in keys if key in settings or f"{key.partition('.')[0]}.name" not in keys]
    pairs = [f"{_short_key(key, settings)}={printed(settings.get(key, 'unset'))}" for key in shown]
    return f"{method} ({', '.join(pairs)})"


def _shortened(value: str) -> str:
    """A long value as it stands in a label: a list as its first entry and their number, a text as its end."""
    if len(value) <= _LONGEST_VALUE:
        return value
    if value.startswith("["):
        first, *others = value.strip("[]").split(", ")
        return f"[{first}, … {len(others)} more]"
    return f"…{value[-_LONGEST_VALUE:]}"


def _short_key(key: str, settings: Mapping[str, str]) -> str:
    """The section for a `name`, the last word of the key where that is unique, otherwise the whole key."""
    section, _, last = key.rpartition(".")
    if last == "name":
        return section
    return last if sum(other.rpartition(".")[2] == last for other in settings) <= 1 else key


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_as_text, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
