"""The server of a deployed run: it waits for the nodes, then runs the rounds like every other run."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedblade.config.run_config import ChosenPart, RunConfig
from fedblade.core.errors import Misconfigured, RunFailed, Unsupported
from fedblade.data import Dataset, Part
from fedblade.engines.deployed import DeployedEngine
from fedblade.engines.nodes import (
    Admitted,
    ClientDescription,
    Dispatch,
    Journal,
    Members,
    Roster,
    RoundRules,
    Scaling,
    Transport,
    own_protocol,
)
from fedblade.engines.sequential import SequentialEngine
from fedblade.flower._node_data import reported_clients, server_test_set
from fedblade.flower.app import ENGINE, TABLE, Deployment
from fedblade.partitions import Reported
from fedblade.results import DEPLOYMENT, RunDirectory
from fedblade.runs import Claims, Setup, prepare, revisions_of

_SIMULATED = {"dropout": "clients that do not answer", "partial_work": "clients that run out of time"}
_PLACEHOLDERS = 2
_SOURCE = "held by the nodes"


def check_deployable(config: RunConfig, deployment: Deployment) -> None:
    """Refuse a configuration that cannot be deployed."""
    if config.evaluation.on != "test":
        raise Unsupported("evaluation.on = 'validation' is for tuning on one machine. Use evaluation.on = 'test'.")
    for key, what in _SIMULATED.items():
        if getattr(config.federation, key):
            raise Unsupported(
                f"federation.{key} = {getattr(config.federation, key):g} simulates {what}, and this run is deployed on "
                f"nodes: there it happens by itself, and {TABLE}.quorum and {TABLE}.round_seconds say how long the run "
                f"waits. Leave federation.{key} out."
            )
    if config.federation.unseen and deployment.data != "shares":
        raise Unsupported(
            f"federation.unseen = {config.federation.unseen:g} compares clients on their shares of one data set, and "
            f"these nodes have data of their own. Leave it out."
        )


def deployed_setup(
    config: RunConfig,
    deployment: Deployment,
    transport: Transport,
    folder: Path,
    journal: Journal,
    admitted: Admitted = lambda _: None,
) -> Setup:
    """Wait for the nodes of the clients, then set up the run on the server.

    This process holds the `folder` of the run. `admitted` gives the clients that a node may speak for.
    """
    check_deployable(config, deployment)
    num_clients, greeting = config.federation.num_clients, _greeting(config, deployment)
    members = Members(folder / DEPLOYMENT, num_clients, greeting, goes_on=RunDirectory(folder).exists)
    roster = Roster(transport, greeting, num_clients, journal, admitted, members)
    roster.gather(deployment.wait_seconds, deployment.min_clients or num_clients)
    shares = deployment.data == "shares"
    has_test_set = shares or bool(deployment.test)
    setup = _shares_setup(config, members) if shares else _nodes_setup(config, deployment, members)
    members.save()

    def common_facts() -> dict[str, Any]:
        return greeting | {"mean_samples": setup.planner.mean_samples, **members.names}

    engine = DeployedEngine(
        ENGINE,
        setup.problem,
        SequentialEngine(setup.problem),
        Dispatch(
            transport, roster, _round_rules(config, deployment), common_facts, journal, setup.method.sent, setup.start
        ),
        folder / "checkpoints" / "waiting",
        setup.test if has_test_set else None,
    )
    return replace(setup, engine=engine, claims=_claims(members, has_test_set=has_test_set))


def _greeting(config: RunConfig, deployment: Deployment) -> dict[str, Any]:
    """The facts with which every node is greeted. They leave the participation out: the coordinator chooses alone."""
    config = replace(config, participation=ChosenPart.uniform())
    return {
        **own_protocol(),
        "config": config.table(),
        "num_classes": deployment.num_classes,
        "data": deployment.data,
        "revisions": revisions_of(config),
    }


def _claims(members: Members, *, has_test_set: bool) -> Claims:
    """Nodes measure the personal models, and the global model too if the server has no test set."""

    def test_samples() -> dict[int, int]:
        return {client: description.test_samples for client, description in members.clients.items()}

    return Claims(frozenset({"personal"}) if has_test_set else frozenset({"global", "personal"}), test_samples)


def _round_rules(config: RunConfig, deployment: Deployment) -> RoundRules:
    return RoundRules(
        round_seconds=deployment.round_seconds,
        quorum=deployment.quorum,
        attempts=deployment.attempts,
        order=deployment.order,
        oldest=config.checkpoint.every * (config.checkpoint.keep + 1),
        max_norm=deployment.max_norm,
        table=TABLE,
    )


def _shares_setup(config: RunConfig, members: Members) -> Setup:
    """The set-up if nodes hold shares of one data set, which the server has too."""
    setup = prepare(replace(config, general=config.general.model_copy(update={"engine": "sequential"})))
    table = setup.clients.train.table()

    def welcome(client: int, description: ClientDescription) -> str | None:
        if description.counts == tuple(int(count) for count in table[client]):
            return None
        return (
            f"client {client} holds other samples than the server's split says. "
            f"Give all nodes the same data set and the same version of fedblade."
        )

    for client, description in members.at_start.items():
        reason = welcome(client, description)
        if reason is not None:
            raise RunFailed(reason)
    members.welcome_joined(welcome)
    return setup


def _nodes_setup(config: RunConfig, deployment: Deployment, members: Members) -> Setup:
    """The set-up if nodes have their own data; the server has a test set or no data.

    It depends on the clients that were there when the run began. The counts of clients that join are added to it.
    """
    start = members.at_start
    dataset = _server_dataset(deployment, start)
    general = config.general.model_copy(update={"engine": "sequential"})
    counts = {client: description.counts for client, description in start.items()}
    clients = reported_clients(counts, config.federation.num_clients, len(dataset.test))
    setup = prepare(replace(config, general=general), dataset, clients=clients)

    def welcome(client: int, description: ClientDescription) -> str | None:
        reason = _misfit(start[min(start)], description)
        if reason is None and isinstance(clients.train, Reported):
            clients.train.report(client, np.array(description.counts, dtype=np.int64))
        return reason

    members.welcome_joined(welcome)
    return setup


def _misfit(first: ClientDescription, later: ClientDescription) -> str | None:
    """Why the inputs of a client that joins do not fit those of the run, or None."""
    if later.input_shape != first.input_shape:
        return f"its inputs have the shape {list(later.input_shape)}; those of the run have {list(first.input_shape)}"
    if later.scaling != first.scaling:
        given, expected = _scaling_text(later.scaling), _scaling_text(first.scaling)
        return f"its inputs are scaled as {given}; those of the run as {expected}"
    return None


def _server_dataset(deployment: Deployment, clients: Mapping[int, ClientDescription]) -> Dataset:
    """The server's test set, or placeholders with the shape and scaling of the clients' inputs."""
    agreement, classes = deployment.agreement, deployment.num_classes
    test_set = server_test_set(deployment.test, classes, agreement) if deployment.test else None
    _check_shapes(test_set, clients)
    _check_scaling(test_set, clients)
    if test_set is not None:
        source = f"{_SOURCE}; the test set is {test_set.source}"
        return replace(test_set, source=source)
    example = clients[min(clients)]
    inputs = np.zeros((_PLACEHOLDERS, *example.input_shape), dtype=example.dtype)
    placeholders = Part(inputs, np.arange(_PLACEHOLDERS) % classes)
    unit, mean, std = example.scaling
    given_shape = example.given_shape or None
    values = None if agreement is None else agreement.classes
    return Dataset(
        "nodes",
        placeholders,
        placeholders,
        classes,
        unit,
        mean,
        std,
        class_names=None if values is None else tuple(map(str, values)),
        source=_SOURCE,
        label_values=values,
        given_shape=given_shape,
        encoding=None if agreement is None else agreement.encoding,
    )


def _check_shapes(test_set: Dataset | None, clients: Mapping[int, ClientDescription]) -> None:
    """Refuse inputs of different shapes."""
    owners = {clients[client].input_shape: f"client {client}" for client in sorted(clients, reverse=True)}
    shown = [f"{list(shape)} ({owner})" for shape, owner in owners.items()]
    shown += [] if test_set is None else [f"{list(test_set.input_shape)} (the server's test set)"]
    if len(owners) > 1 or (test_set is not None and test_set.input_shape not in owners):
        raise Misconfigured(f"inputs have the shapes {', '.join(shown)}; expected one. Resize them alike.")


def _check_scaling(test_set: Dataset | None, clients: Mapping[int, ClientDescription]) -> None:
    """Refuse inputs that are scaled in different ways, because a trained model stores one scaling of its inputs."""
    owners = {clients[client].scaling: f"client {client}" for client in sorted(clients, reverse=True)}
    if test_set is not None:
        owners.setdefault((test_set.unit, test_set.mean, test_set.std), "the server's test set")
    if len(owners) > 1:
        shown = [f"{_scaling_text(scaling)} ({owner})" for scaling, owner in owners.items()]
        raise Misconfigured(
            f"inputs x are scaled as {', '.join(shown)}; expected one way. Store them in one type, bytes or real "
            f"numbers, on all nodes."
        )


def _scaling_text(scaling: Scaling) -> str:
    unit, mean, std = scaling
    return f"(x / {unit:g} - {list(mean)}) / {list(std)}"
