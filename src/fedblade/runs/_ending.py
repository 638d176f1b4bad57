"""Why a run ends before its last round: its seconds run out, its accuracy rises no more, or a listener says so.

The round with which a run ends has the mark `stopped` in the history. From the mark and the history follows whether the
run stays as it is or goes on, for example because its limit was raised.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fedblade import protocols
from fedblade.config.run_config import RunConfig
from fedblade.core.words import plural

STOPPED = "stopped"
"""The field of a round record, and of the summary, that says why the run ended with this round."""
_SECONDS, _PATIENCE, _CALLBACK = "max_seconds", "patience", "callback"

History = Sequence[Mapping[str, Any]]
Mark = dict[str, Any]
"""`reason` (`max_seconds`, `patience` or `callback`), its `limit` or its `text`, and the `rounds` that were planned."""


def stop_mark(history: History, config: RunConfig, asked: bool | str) -> Mark | None:
    """Why the run ends with the last round of the history, None if it goes on. `asked` is what listeners say."""
    stop, planned = config.stop, {"rounds": config.federation.rounds}
    if history[-1]["round"] >= config.federation.rounds:
        return None
    if asked:
        return {"reason": _CALLBACK, "text": asked if isinstance(asked, str) else "", **planned}
    if _is_patience_lost(history, config):
        return {"reason": _PATIENCE, "limit": stop.patience, **planned}
    if _is_time_up(history, config):
        return {"reason": _SECONDS, "limit": stop.max_seconds, **planned}
    return None


def standing_stop(history: History, config: RunConfig) -> Mark | None:
    """Why a run with this history has ended before its last round; None if it goes on.

    A limit that was raised or removed lets the run go on. If a callback ended the run, other `federation.rounds` do.
    """
    mark = history[-1].get(STOPPED) if history else None
    if mark is None or history[-1]["round"] >= config.federation.rounds:
        return None
    match mark["reason"]:
        case "max_seconds":
            stands = _is_time_up(history, config)
        case "patience":
            stands = _is_patience_lost(history, config)
        case _:
            stands = mark["rounds"] == config.federation.rounds
    return dict(mark) if stands else None


def stop_facts(history: History) -> dict[str, Any]:
    """What the summary says of a run whose last round has a mark; empty for every other run."""
    mark = history[-1].get(STOPPED) if history else None
    if mark is None or history[-1]["round"] >= mark["rounds"]:
        return {}
    facts = {"round": history[-1]["round"], **mark}
    return {STOPPED: facts | {"text": _sentence(facts)}}


def how_to_go_on(stopped: Mapping[str, Any]) -> str:
    """What a user does to go on with a run that has ended before its last round."""
    if stopped["reason"] == _CALLBACK:
        return f"To go on with it, set other federation.rounds than {stopped['rounds']}."
    return f"To go on with it, raise stop.{stopped['reason']} or set it to none."


def is_optimistic(history: History, config: RunConfig) -> bool:
    """Whether the moment of the end was chosen on the test set."""
    mark = history[-1].get(STOPPED) if history else None
    return mark is not None and mark["reason"] == _PATIENCE and config.evaluation.on == "test"


def wall_seconds(history: History) -> float:
    """The seconds of all rounds, evaluation included. Rounds of earlier versions only have those of their training."""
    return sum(float(record.get("wall_seconds", record.get("seconds")) or 0.0) for record in history)


def _is_time_up(history: History, config: RunConfig) -> bool:
    limit = config.stop.max_seconds
    return limit != "none" and wall_seconds(history) >= limit


def _is_patience_lost(history: History, config: RunConfig) -> bool:
    """Whether as many evaluated rounds as `stop.patience` came after the first round with the highest accuracy."""
    accuracies = [accuracy for _, accuracy in protocols.accuracies(history)]
    if config.stop.patience == "none" or not accuracies:
        return False
    return len(accuracies) - 1 - accuracies.index(max(accuracies)) >= config.stop.patience


def _sentence(facts: Mapping[str, Any]) -> str:
    """Why and when the run ended, in one line."""
    where = f"stopped after round {facts['round']} of {facts['rounds']}"
    match facts["reason"]:
        case "max_seconds":
            return f"{where}: its rounds have taken {facts['limit']:g} s (stop.max_seconds)"
        case "patience":
            return f"{where}: no higher accuracy in {plural(facts['limit'], 'evaluated round')} (stop.patience)"
    return f"{where}: {facts['text'] or 'a callback asked for it'}"
