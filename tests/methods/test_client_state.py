"""State that clients keep: SCAFFOLD as style.md writes it, in memory, on disk and over a restart."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

import support.plain_torch as plain
from fedblade import payloads
from fedblade.core.method import Method, zeros
from fedblade.core.outcome import train_client
from fedblade.core.sums import Sum
from fedblade.core.terms import GradientTerm
from fedblade.core.tree import tree_map
from fedblade.heads import LinearHead
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from fedblade.results import RunDirectory
from fedblade.runs import Driver, RunListener, prepare
from fedblade.server import average
from support.small_federation import (
    BATCH_NORM,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    configure,
    tasks,
    train,
    vectors,
)


@dataclass(frozen=True, kw_only=True)
class Drift(GradientTerm):
    """c - c_k, the correction of every local step."""

    name: ClassVar[str] = "drift"

    def gradient(self, view):
        return tree_map(torch.sub, view.server["c"], view.client["c"])


def new_control(view):
    return tree_map(
        lambda ck, c, w0, w: ck - c + (w0 - w) / (view.effective_steps * view.lr),
        view.client["c"],
        view.server["c"],
        view.anchor,
        view.params,
    )


def control_change(view):
    return tree_map(lambda new, old: (new - old) / view.population, new_control(view), view.client["c"])


def server(state, sums):
    c = tree_map(torch.add, state.extra["c"], sums["control"])
    return average(state, sums).replace(extra={**state.extra, "c": c})


def scaffold():
    return Method(
        head=LinearHead(),
        losses=(CrossEntropy(), Drift()),
        sums=(*payloads.MODEL, Sum("control", control_change, bound=1e3)),
        server=server,
        client_state={"c": zeros},
        client_update={"c": new_control},
        server_state={"c": zeros},
    )


PLAIN_SGD = {"momentum": 0.0, "weight_decay": 0.0}


def opened(path):
    directory = RunDirectory(path)
    directory.open(resume=False)
    return directory


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_its_first_round_is_fedavgs(norm):
    overrides = {"rounds": 1, "model.norm": norm}
    a, b = train(scaffold(), **overrides), train("fedavg", **overrides)
    assert_same_bits(a.state.params, b.state.params)
    assert_same_bits(a.state.buffers, b.state.buffers)


def test_its_second_round_is_not():
    assert_different(train(scaffold()).state.params, train("fedavg").state.params)


def plain_scaffold(setup, rounds):
    """SCAFFOLD, option II, with autograd and dictionaries only."""
    samples = setup.problem.samples
    params = setup.start.params
    c = {n: torch.zeros_like(v) for n, v in params.items()}
    own = [{n: torch.zeros_like(v) for n, v in params.items()} for _ in range(4)]
    for round_ in range(rounds):
        models, sizes, change = [], [], {n: torch.zeros_like(v) for n, v in params.items()}
        for client in setup.cohorts[round_]:
            task = setup.planner.task(round_, int(client))
            batches = [b.indices for b in task.phases[0]]
            data_loss = plain.cross_entropy(plain.MLP, {}, samples.inputs, samples.labels)
            mine = own[client]

            def loss(w, indices, mine=mine, data_loss=data_loss, c=c):
                return data_loss(w, indices) + sum(((c[n] - mine[n]) * w[n]).sum() for n in w)

            local = plain.local_sgd(loss, params, batches, 0.05, 0.0, 0.0)
            new = {n: mine[n] - c[n] + (params[n] - local[n]) / (len(batches) * 0.05) for n in params}
            change = {n: change[n] + (new[n] - mine[n]) / 4 for n in params}
            own[client] = new
            models.append(local)
            sizes.append(len(task.indices))
        params = plain.weighted_mean(models, sizes)
        c = {n: c[n] + change[n] for n in c}
    return params, c


@pytest.mark.parametrize("cohort", [4, 2])
def test_three_rounds_agree_with_a_plain_version(cohort):
    ran = train(scaffold(), rounds=3, clients_per_round=cohort, **PLAIN_SGD)
    params, c = plain_scaffold(ran.setup, 3)
    assert_close(ran.state.params, params, 1e-11)
    assert_close(ran.state.extra["c"], c, 1e-11)


def test_a_client_that_did_not_take_part_keeps_its_control():
    ran = train(scaffold(), rounds=3, clients_per_round=2)
    absent = [client for client in ran.history[0]["clients"] if client not in ran.history[1]["clients"]]
    shorter = {rounds: train(scaffold(), rounds=rounds, clients_per_round=2) for rounds in (1, 2)}
    assert absent
    for client in absent:
        first, second = (shorter[r].driver._store.get(client, r)["c"] for r in (1, 2))
        assert_same_bits(first, second)


def test_controls_of_clients_and_server_agree():
    """With everybody in every round the server's control is the mean of the clients'."""
    ran = train(scaffold(), rounds=3)
    own = [ran.driver._store.get(client, 3)["c"] for client in range(4)]
    mean = {n: torch.stack([c[n] for c in own]).mean(0) for n in own[0]}
    assert_close(ran.state.extra["c"], mean, 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("persist", [False, True])
def test_memory_and_disk_agree(tmp_path, dtype, persist):
    overrides = {"rounds": 4, "clients_per_round": 2, "dtype": dtype, "persist": persist, **BATCH_NORM}
    disk = train(scaffold(), directory=opened(tmp_path), **overrides)
    memory = train(scaffold(), **overrides)
    assert_same_run(disk, memory)
    assert_same_bits(disk.state.flat(), memory.state.flat())


class StopAfter(RunListener):
    def __init__(self, rounds, clients):
        self.left, self.rounds = clients, rounds

    def on_client(self, round_, client):
        self.left -= round_ > self.rounds
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize(("rounds", "clients"), [(0, 1), (1, 0), (2, 1), (3, 1)])
def test_a_run_killed_in_the_middle_of_a_round_ends_the_same(tmp_path, every, rounds, clients):
    """States that the killed process wrote in the unfinished round do not count."""
    overrides = {"rounds": 4, "clients_per_round": 2, "persist": True, "checkpoint.every": every, **BATCH_NORM}
    setup = prepare(configure(scaffold(), **overrides), vectors())
    directory = opened(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Driver(setup, directory, StopAfter(rounds, clients)).run()
    resumed = Driver(setup, directory, RunListener())
    resumed.run()
    whole = train(scaffold(), **overrides)
    assert_same_bits(resumed.state.flat(), whole.state.flat())
    rows = [{k: v for k, v in row.items() if "seconds" not in k} for row in resumed.history]
    assert rows == whole.history


def test_an_idle_client_keeps_its_state():
    setup = build(scaffold())
    task = tasks(setup)[0]
    state = train_client(setup.problem, setup.start, task, None, 0.05).state
    idle = replace(task, phases=((),), weight=0.0)
    assert train_client(setup.problem, setup.start, idle, state, 0.05).state == state


def test_state_of_clients_is_not_sent():
    setup = build(scaffold())
    names = {each.name for each in setup.method.sums}
    assert names == {"delta", "buffers", "counters", "weight", "control"}


def test_broadcast_state_is_paid_for():
    scaffold_row, fedavg_row = train(scaffold(), rounds=1).history[0], train(rounds=1).history[0]
    numbers = sum(v.numel() for v in build().start.params.values())
    assert scaffold_row["bytes_down"] - fedavg_row["bytes_down"] == 4 * numbers * 8
    assert scaffold_row["bytes_up"] - fedavg_row["bytes_up"] == 4 * numbers * 8


def previous_model():
    """MOON-like: a client keeps the whole model it ended with, and a head of its own."""
    return replace(
        fedavg(),
        personal=("head",),
        client_state={"previous": lambda view: dict(view.params)},
        client_update={"previous": lambda view: view.params},
    )


def test_a_state_that_holds_the_model_itself_survives_on_disk(tmp_path):
    assert_same_run(train(previous_model(), directory=opened(tmp_path)), train(previous_model()))
