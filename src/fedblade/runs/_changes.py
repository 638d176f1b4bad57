"""What a user may change when a run goes on, and what may not change in a run."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade import protocols
from fedblade.config.run_config import RunConfig, complete_config
from fedblade.core.errors import Misconfigured
from fedblade.core.nested import dotted
from fedblade.core.words import plural
from fedblade.results import CONFIG, RunDirectory, is_later_setting
from fedblade.runs._checkpoints import Checkpoints
from fedblade.runs._ending import STOPPED, standing_stop

ROUNDS = "federation.rounds"
_FREE = frozenset(
    {
        "id", "trackers", "device", "engine", "evaluation.metrics", "evaluation.every", "evaluation.diagnostics_every",
        "checkpoint.every", "checkpoint.keep", "distributed.timeout_seconds", "stop.max_seconds", "stop.patience",
    }
)  # fmt: skip
"""Keys that may change whenever a run goes on: they decide where it is computed, what is measured and saved, and when
it ends."""
_UNSEEN = frozenset({"id", "trackers", "distributed.timeout_seconds"})
"""Free keys that no result depends on, not even in its last bits."""


@dataclass(frozen=True)
class Change:
    """A setting that is asked for with another value than the run has."""

    key: str
    before: Any
    now: Any

    @property
    def is_seen(self) -> bool:
        """Whether a reader of the results should know of the change."""
        return self.key not in _UNSEEN

    def __str__(self) -> str:
        return f"{self.key} = {self.now!r} (before: {self.before!r})"


def changes_of(directory: RunDirectory, config: RunConfig) -> list[Change]:
    """The changes of the configuration that is asked for; a change that is not allowed is refused.

    Without a run in the folder there are none. A setting that is newer than the run has its default.
    """
    if not directory.exists:
        return []
    record = Checkpoints(directory).record()
    before = dotted(_completed(directory.stored_config() if record is None else record.config))
    now = dotted(config.table())
    changes = [
        Change(key, before.get(key), now.get(key))
        for key in sorted(before.keys() | now.keys(), key=lambda key: (not key.endswith(".name"), key))
        if before.get(key) != now.get(key)
    ]
    for change in changes:
        _refuse_if_fixed(directory, config, change)
    _refuse_after_exchanges(directory, config)
    return changes


def stored_table(directory: RunDirectory) -> dict[str, Any]:
    """The configuration in the folder of a run. A setting that `config.toml` lacks is as the run has it."""
    record = Checkpoints(directory).record()
    return directory.stored_config(None if record is None else record.config)


def changed_table(stored: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """A stored configuration with the changes; nothing else is added, so that the digest of the rest stays."""
    table = {key: dict(value) if isinstance(value, Mapping) else value for key, value in stored.items()}
    for change in changes:
        section, _, key = change.key.rpartition(".")
        target = table.setdefault(section, {}) if section else table
        target[key] = change.now
    return table


def run_digest(table: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """A digest of what may not change in a run: the fixed settings, and `facts` about data, split and code.

    A setting that came later does not count while it means what was done before, so that the digest stays.
    """
    settings = {
        key: value
        for key, value in dotted(table).items()
        if key not in _FREE and key != ROUNDS and not is_later_setting(key, value)
    }
    return hashlib.sha256(json.dumps([settings, facts], sort_keys=True).encode()).hexdigest()


def _completed(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stored configuration with the defaults of settings that it lacks; unchanged if one of its parts is gone."""
    try:
        return complete_config(stored).table()
    except Misconfigured:
        return stored


def _refuse_if_fixed(directory: RunDirectory, config: RunConfig, change: Change) -> None:
    if change.key in _FREE:
        return
    path: Path = directory.path
    reason = _against_rounds(directory, config, change) if change.key == ROUNDS else ""
    if change.key != ROUNDS:
        reason = "This setting may not change in a run."
    if reason:
        place, remedy = "", "Resume with the same configuration, or choose another --out."
        if dotted(_completed(stored_table(directory))).get(change.key) == change.now:
            place = f" in its {CONFIG}"
            remedy = "Put the former value back there, or remove that file: the run goes on with the settings it has."
        raise Misconfigured(
            f"'{path}' was started with {change.key} = {change.before!r}, now it is {change.now!r}{place}. {reason} "
            f"{remedy}"
        )


def _refuse_after_exchanges(directory: RunDirectory, config: RunConfig) -> None:
    """Refuse to go on with a run that has ended early and whose method has then changed its model."""
    history = directory.history()
    ended_early = bool(history) and STOPPED in history[-1] and history[-1]["round"] < config.federation.rounds
    if ended_early and protocols.is_calibrated(history) and standing_stop(history, config) is None:
        raise Misconfigured(
            f"'{directory.path}' has ended with round {history[-1]['round']}, and method '{config.method.name}' has "
            f"then changed its model. Such a run cannot go on: choose another --out, or an earlier round with "
            f"--from-round."
        )


def _against_rounds(directory: RunDirectory, config: RunConfig, change: Change) -> str:
    """Why the run cannot have another number of rounds; empty if it can."""
    done = directory.rounds_on_record()
    if change.now <= done:
        return f"{plural(done, 'round')} {'is' if done == 1 else 'are'} done already; choose more than {done}."
    if config.optimizer.schedule == "step":
        return "The learning rates of optimizer.schedule = 'step' depend on the number of rounds."
    at_end = done >= change.before
    if at_end and any(exchange.when == "after_run" for exchange in config.build_method().exchanges):
        return f"Method '{config.method.name}' has changed its model after the last round."
    return ""
