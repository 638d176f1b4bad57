"""The configuration and the folder of a shared run: rank 0 chooses them, and the other ranks must agree."""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedblade._version import __version__
from fedblade.config.run_config import RunConfig, complete_config
from fedblade.core.errors import Misconfigured
from fedblade.core.nested import dotted
from fedblade.core.words import listing
from fedblade.engines.ranks import Ranks, describe_error, raise_described_error, raise_first_error
from fedblade.runs._request import RunRequest
from fedblade.runs._roll_back import chosen_folder

_DEVICE = "device"
_OWN = frozenset({_DEVICE, "trackers"})
"""Settings that may differ from rank to rank: where a rank computes, and what only rank 0 has to write."""
_NOT_SET = "not set"
_MOST_SHOWN = 5
_LEAVE_FIRST_SECONDS = 0.5
"""How long the other ranks wait for rank 0 to end first: torchrun stops all processes when the first one fails."""


def agreed_config(ranks: Ranks | None, request: RunRequest) -> RunConfig:
    """The configuration of the run: rank 0 reads it, and a rank that was asked for another one is refused.

    A rank on whose machine the file of the configuration is not there compares what its command says with what that of
    rank 0 says. Every rank has its own `device`.
    """
    if ranks is None:
        return request.config()
    with _rank_0_first(ranks):
        hosts = _agree_on_versions(ranks)
        made = _from_rank_0(ranks, lambda: _described(request))
        failed: Exception | None = None
        config: RunConfig | None = None
        differences: list[tuple[str, Any, Any]] = []
        try:
            config = replace(complete_config(made["table"]), notes=tuple(made["notes"]))
            if not ranks.is_rank_0:
                differences, device = _differences(request, made)
                config = replace(config, general=config.general.model_copy(update={_DEVICE: device}))
        except Exception as error:
            failed = error
        everyone = ranks.gather(describe_error(failed) if failed else {"differences": differences})
        raise_first_error(ranks, everyone, failed)
        _refuse_differences([header["differences"] for header in everyone], hosts)
        assert config is not None  # noqa: S101 - or an error was raised
        return config


def agreed_folder(ranks: Ranks | None, request: RunRequest, config: RunConfig) -> Path:
    """The folder of the run: that of the rank's own --out, or a new one that rank 0 chooses."""
    if ranks is None or (request.out is not None and request.from_round is None):
        return chosen_folder(request, config)
    with _rank_0_first(ranks):
        return Path(_from_rank_0(ranks, lambda: str(chosen_folder(request, config))))


def _from_rank_0(ranks: Ranks, make: Callable[[], Any]) -> Any:
    """Plain data that rank 0 makes, on every rank. If making them fails, the error is raised on every rank."""
    if ranks.is_rank_0:
        try:
            made = make()
        except Exception as error:
            ranks.broadcast(describe_error(error))
            raise
        ranks.broadcast({"made": made})
        return made
    message, _ = ranks.receive_broadcast()
    if "error" in message:
        raise_described_error(None, message["error"])
    return message["made"]


@contextlib.contextmanager
def _rank_0_first(ranks: Ranks) -> Iterator[None]:
    """If the block fails, the other ranks wait until rank 0 has printed its error."""
    try:
        yield
    except Exception:
        if not ranks.is_rank_0:
            leave_after_rank_0()
        raise


def leave_after_rank_0() -> None:
    """Wait until rank 0 has printed its error."""
    time.sleep(_LEAVE_FIRST_SECONDS)


def _agree_on_versions(ranks: Ranks) -> list[str]:
    """Refuse ranks with other versions, before anything travels whose form they may not share; the hosts of all."""
    # A script may start several runs. The other ranks wait for the next one as long as rank 0 likes.
    if ranks.is_rank_0:
        ranks.broadcast({"kind": "agree"})
    else:
        ranks.receive_broadcast()
    everyone = ranks.gather({"host": socket.gethostname(), "fedblade": __version__, "torch": torch.__version__})
    for rank, theirs in enumerate(everyone):
        for name in ("fedblade", "torch"):
            if theirs[name] != everyone[0][name]:
                raise Misconfigured(
                    f"rank {rank} on {theirs['host']} has {name} {theirs[name]}, and rank 0 on {everyone[0]['host']} "
                    f"has {name} {everyone[0][name]}. Install the same versions for all ranks."
                )
    return [theirs["host"] for theirs in everyone]


def _described(request: RunRequest) -> dict[str, Any]:
    """What rank 0 was asked for: configuration with notes, options of the command, and settings as they were given."""
    config = request.config()
    own = {"options": request.options(), "given": request.as_given()}
    return {"table": config.table(), "notes": list(config.notes)} | own


def _differences(request: RunRequest, made: Mapping[str, Any]) -> tuple[list[tuple[str, Any, Any]], str]:
    """What this rank was asked for and rank 0 was not: keys with both values. And the device of this rank."""
    if request.is_readable:
        config = request.config()
        as_received = json.loads(json.dumps(config.table()))  # lists in place of tuples, as in what rank 0 sent
        own, theirs, device = dotted(as_received), dotted(made["table"]), config.general.device
    else:
        own, theirs = request.as_given(), made["given"]
        device = own.get(_DEVICE, made["table"][_DEVICE])
    own, theirs = {**request.options(), **own}, {**made["options"], **theirs}
    keys = [key for key in dict.fromkeys((*theirs, *own)) if key not in _OWN]
    pairs = [(key, own.get(key, _NOT_SET), theirs.get(key, _NOT_SET)) for key in keys]
    return [pair for pair in pairs if pair[1] != pair[2]], device


def _refuse_differences(everyone: Sequence[Sequence[Sequence[Any]]], hosts: Sequence[str]) -> None:
    """Refuse ranks that were asked for another run than rank 0. `everyone` has the differences of every rank."""
    found = []
    for rank, differences in enumerate(everyone):
        named = [f"{key} = {own!r} (rank 0: {theirs!r})" for key, own, theirs in differences]
        found += [f"rank {rank} on {hosts[rank]} has {listing(named, _MOST_SHOWN)}"] if named else []
    if found:
        raise Misconfigured(
            f"the ranks were asked for different runs: {'; '.join(found)}. Start all ranks with the same settings and "
            f"options; only device, trackers, the folder of --out and --quiet may differ."
        )
