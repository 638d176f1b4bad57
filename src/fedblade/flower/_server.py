"""The server half of a deployed run: gather the nodes, then the rounds of any run."""

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured, RunFailed, Unsupported
from fedblade.core.files import write_atomic
from fedblade.data import Dataset, Part
from fedblade.engines.deployed import DeployedEngine
from fedblade.engines.nodes import Dispatch, Holding, Journal, Post, Roster, Terms
from fedblade.engines.sequential import SequentialEngine
from fedblade.flower._app import Deployment
from fedblade.flower._data import own_dataset, reported_clients
from fedblade.results import DEPLOYMENT, EVENTS
from fedblade.runs import Setup, prepare

_PLACEHOLDERS = 2
_HELD = "held by the nodes"


def check_deployable(config: RunConfig) -> None:
    """Refuse what a deployed run cannot do, before anything is started."""
    if config.evaluation.on != "test":
        raise Unsupported("evaluation.on = 'validation' is for tuning on one machine. Use evaluation.on = 'test'.")


def deployed_setup(config: RunConfig, deployment: Deployment, post: Post, folder: Path, journal: Journal) -> Setup:
    """A run whose clients are nodes: waits for them, and builds what the server needs."""
    check_deployable(config)
    greeting = {"config": config.table(), "num_classes": deployment.num_classes, "data": deployment.data}
    roster = Roster(post, greeting, config.federation.num_clients, journal)
    roster.gather(deployment.wait_seconds)
    shares = deployment.data == "shares"
    setup = _shared(config, roster.held) if shares else _apart(config, deployment, roster.held)
    terms = Terms(
        round_seconds=deployment.round_seconds,
        quorum=deployment.quorum,
        attempts=deployment.attempts,
        order=deployment.order,
        oldest=config.checkpoint.every * (config.checkpoint.keep + 1),
        max_norm=deployment.max_norm,
    )

    def facts() -> dict[str, Any]:
        return greeting | {"mean_samples": setup.planner.mean_samples, "token": run_token(folder)}

    engine = DeployedEngine(
        setup.problem,
        SequentialEngine(setup.problem),
        Dispatch(post, roster, terms, facts, journal, setup.method.sent, setup.start),
        folder / "checkpoints" / "waiting",
        setup.test if shares or deployment.test else None,
    )
    return replace(setup, engine=engine)


def run_token(folder: Path) -> str:
    """What nodes know the run by: the same when it goes on, another for another run."""
    path = folder / DEPLOYMENT
    if path.is_file():
        try:
            return str(json.loads(path.read_text(encoding="utf-8"))["token"])
        except (ValueError, KeyError, OSError) as error:
            raise RunFailed(f"'{path}' cannot be read ({error}). Start a new run elsewhere.") from error
    token = secrets.token_hex(8)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps({"token": token}))
    return token


def _shared(config: RunConfig, held: Mapping[int, Holding]) -> Setup:
    """A rehearsal: nodes hold shares of one data set, which the server has too."""
    setup = prepare(replace(config, general=config.general.model_copy(update={"engine": "sequential"})))
    table = setup.clients.train.table()
    for client in range(len(table)):
        if held[client].counts != tuple(int(count) for count in table[client]):
            raise RunFailed(
                f"client {client} holds other samples than the server's split says. "
                f"Give all nodes the same data set and the same version of fedblade."
            )
    return setup


def _apart(config: RunConfig, deployment: Deployment, held: Mapping[int, Holding]) -> Setup:
    """Nodes have data of their own; the server has a test set, or nothing."""
    dataset = _server_dataset(deployment, held)
    own = config.general.model_copy(update={"engine": "sequential"})
    counts = {client: list(holding.counts) for client, holding in held.items()}
    return prepare(replace(config, general=own), dataset, clients=reported_clients(counts, len(dataset.test)))


def _shapes(held: Mapping[int, Holding]) -> dict[tuple[int, ...], int]:
    """The shapes of inputs, each with the first client that has it."""
    return {held[client].input_shape: client for client in sorted(held, reverse=True)}


def _server_dataset(deployment: Deployment, held: Mapping[int, Holding]) -> Dataset:
    """The server's test set or, once all clients have inputs of one shape and scale, placeholders that look alike."""
    given = own_dataset(deployment.test, deployment.num_classes) if deployment.test else None
    shape, *others = shapes = _shapes(held)
    if others or (given is not None and given.input_shape != shape):
        told = [f"{list(each)} (client {client})" for each, client in shapes.items()]
        told += [f"{list(given.input_shape)} (the server's test set)"] if given is not None else []
        raise Misconfigured(f"inputs have the shapes {', '.join(told)}; expected one. Resize them alike.")
    _check_scaling(given, held)
    if given is not None:
        return replace(given, train=given.test, reader=None, source=f"{_HELD}; the test set is {given.source}")
    look, classes = held[min(held)], deployment.num_classes
    empty = Part(np.zeros((_PLACEHOLDERS, *shape), dtype=look.dtype), np.arange(_PLACEHOLDERS) % classes)
    unit, mean, std = look.scaling
    own_shape = look.given_shape or None
    return Dataset("nodes", empty, empty, classes, unit, mean, std, source=_HELD, given_shape=own_shape)


def _check_scaling(given: Dataset | None, held: Mapping[int, Holding]) -> None:
    """Refuse inputs that are scaled in different ways: one model could not be told how to scale what it predicts."""
    scalings = {held[client].scaling: f"client {client}" for client in sorted(held, reverse=True)}
    if given is not None:
        scalings.setdefault((given.unit, given.mean, given.std), "the server's test set")
    if len(scalings) > 1:
        told = [f"(x / {unit:g} - {list(mean)}) / {list(std)} ({who})" for (unit, mean, std), who in scalings.items()]
        raise Misconfigured(
            f"inputs x are scaled as {', '.join(told)}; expected one way. Store them in one type, bytes or real "
            f"numbers, on all nodes."
        )


def journal_of(folder: Path) -> Journal:
    """Appends what happens to `deployment.jsonl` in the folder of the run, as soon as there is one."""
    early: list[str] = []

    def note(event: Mapping[str, Any]) -> None:
        early.append(json.dumps({"time_seconds": time.time(), **event}) + "\n")
        if folder.is_dir():
            with (folder / EVENTS).open("a", encoding="utf-8") as file:
                file.writelines(early)
            early.clear()

    return note
