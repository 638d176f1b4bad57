"""Small runs, alone and on nodes, that can be compared to the last bit."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fedblade.core.tree import tree_digest
from fedblade.flower._node import Node
from fedblade.flower._server import deployed_setup
from fedblade.flower.app import Deployment
from fedblade.results import CONFIG, RunDirectory
from fedblade.runs import Driver, RunListener, load_config, prepare
from support.local_transport import LocalTransport

SMALL = {
    "model": "mlp", "model.hidden": [12], "model.dim": 16, "num_clients": 5, "clients_per_round": 3, "rounds": 2,
    "epochs": 1, "batch_size": 128, "engine": "sequential", "device": "cpu", "evaluation.every": 2,
    "partition.min_size": 5,
}  # fmt: skip
EVERYONE = {"clients_per_round": 5, "evaluation.metrics": []}
QUICK = Deployment(round_seconds=0.05, wait_seconds=0.05)
"""Nodes here answer while they are asked, so that who has not answered at once never will."""


def config_of(method, **changes):
    return load_config("quickstart", SMALL | {"method": method} | changes)[0]


def config_of_clients(method, **changes):
    """The same run of clients whose data are divided already."""
    divided = ("num_clients", "partition.min_size")
    small = {key: value for key, value in SMALL.items() if key not in divided}
    return load_config("quickstart", small | {"method": method} | changes)[0]


def nodes(folder, clients=5):
    """Node 100 + k for client k."""
    return {100 + k: Node((k,), None, folder / f"node{k}", "cpu") for k in range(clients)}


def trained(setup, directory=None):
    driver = Driver(setup, directory, RunListener())
    driver.run()
    return driver


def digest(driver):
    return tree_digest(driver.state.flat())


@dataclass
class Far:
    """A run on nodes of its own: the transport, the journal and where everything is.

    The lengths of updates are noted in every round; they are in `updates`, all other events in `events`.
    """

    config: Any
    folder: Path
    deployment: Deployment = QUICK
    tamper: Any = None
    order: Any = list
    there: Any = None
    admitted: Any = lambda _: None
    events: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self):
        given = nodes(self.folder, self.config.federation.num_clients) if self.there is None else self.there
        self.transport = LocalTransport(given, order=self.order, tamper=self.tamper)

    def setup(self):
        run = self.folder / "run"
        return deployed_setup(self.config, self.deployment, self.transport, run, self._note, self.admitted)

    def _note(self, event):
        (self.updates if event["event"] == "updates" else self.events).append(event)

    def trained(self, directory=None):
        return trained(self.setup(), directory)

    def refused(self):
        return [event for event in self.events if event["event"] == "refused reply"]


def opened(run, *, resume):
    """The folder of a run on nodes, ready to be written."""
    directory = RunDirectory(run.folder / "run")
    directory.open(resume=resume)
    directory.write(CONFIG, run.config.to_toml())
    return directory


class Stopped(Exception):
    """The server's process ends."""


def stopped(run):
    """Stops the run after its first round."""

    def tamper(request, reply):
        if request.kind == "train" and request.facts["round"] == 1:
            raise Stopped
        return [reply]

    run.transport.tamper = tamper
    directory = opened(run, resume=False)
    with pytest.raises(Stopped):
        run.trained(directory)
    directory.close()
    run.transport.tamper = None


class Leaving:
    """An engine that leaves some clients out of some rounds: {round from 0: clients}."""

    name = "sequential"

    def __init__(self, engine, missing):
        self._engine, self._missing = engine, missing

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def train(self, server, tasks, *rest):
        left = [client for client in tasks.clients if client not in self._missing.get(tasks.round, ())]
        return self._engine.train(server, tasks.only(left), *rest)

    def collect(self, server, tasks, *rest):
        return self._engine.collect(server, tasks, *rest)


def alone(config, missing=None):
    """The sequential run in this process, without some clients in some rounds."""
    setup = prepare(config)
    return trained(replace(setup, engine=Leaving(setup.engine, missing or {})))
