"""A rehearsal of what a run will ask of the stacked engine, for two pretended clients on a few real samples.

It runs one step of every phase, what ends a round, exchanges and measurements, and compares them with the same clients
one by one: code that cannot run side by side raises, and code that takes padding for samples gives other numbers.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from fedblade.core.errors import NonFinite, Unsupported
from fedblade.core.local import Row, train
from fedblade.core.outcome import own_passes
from fedblade.core.passes import run_passes
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import Problem, Received, own_model, receive
from fedblade.core.state import ServerState
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.engines._group import each_state, receive_group, with_batches
from fedblade.engines._group_finish import collect_group, finish_group
from fedblade.engines._group_passes import GroupPasses
from fedblade.engines._own_models import own_models
from fedblade.engines._portions import Data
from fedblade.engines.base import Holder

SAMPLES = (6, 4)
"""Samples of the two clients, so that a third of the second one's batch is padding."""
RATE = 1e-3
TOLERANCE, ROUGHLY = 0.01, 0.1
"""Of the numbers compared: far above rounding, far below what padding does to a mean; the second for bfloat16."""


def rehearse(passes: GroupPasses, server: ServerState, task: ClientTask, measured: Sequence[DataPass]) -> None:
    """Raise what the method or the model raises side by side, or `Unsupported` if its numbers are others.

    `task` is a client's that the two are cut from, `measured` the passes over test data. Leaves nothing behind.
    """
    device = passes.many.problem.samples.labels.device
    least = 2 if passes.many.problem.network.skips_singletons else 1
    tasks = [_cut(task, size, least) for size in SAMPLES]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.inference_mode(False):
        received = receive_group(passes.many.problem, server, tasks, [None, None], RATE)
        alone = [receive(passes.many.problem, server, each, None, RATE) for each in tasks]
        _train(passes, tasks, received, alone)
        with torch.no_grad():
            _exchange(passes, tasks, received, alone)
            _measure(passes, server, tasks, received, measured)


def _train(passes: GroupPasses, tasks: Sequence[ClientTask], received: Received, alone: Sequence[Received]) -> None:
    """One step of each phase, and the end of the round."""
    problem = passes.many.problem
    with torch.enable_grad():
        expected = [train(problem, each)[1] for each in alone]
        row, trace = train(problem, with_batches(received, tasks), None, passes.many)
    for number, entry in enumerate(trace):
        for name, value in entry.items():
            both = torch.stack([steps[number][name] for steps in expected])
            _compare(problem, f"the term {name.removeprefix('loss_')}", value, both)
    sums = problem.method.sums
    made = passes.of_sums(tasks, received, row.params, row.buffers, sums)
    with suppress(NonFinite):
        finish_group(problem, tasks, received, row, made)


def _exchange(passes: GroupPasses, tasks: Sequence[ClientTask], received: Received, alone: Sequence[Received]) -> None:
    """What clients add up over their data, with the model they start from."""
    problem = passes.many.problem
    for sums in (problem.method.sums, *(exchange.sums for exchange in problem.method.exchanges)):
        found = passes.of_sums(tasks, received, received.anchor, received.buffers, sums)
        for place, each in enumerate(alone):
            expected = own_passes(problem, each, Row(each.anchor, each.buffers, {}), sums)
            _compare_passes(problem, each_state(found, len(tasks))[place], expected)
    for exchange in problem.method.exchanges:
        with suppress(NonFinite):
            made = passes.of_sums(tasks, received, received.anchor, received.buffers, exchange.sums)
            collect_group(problem, tasks, received, exchange.sums, made)


def _measure(
    passes: GroupPasses,
    server: ServerState,
    tasks: Sequence[ClientTask],
    received: Received,
    measured: Sequence[DataPass],
) -> None:
    """The clients' own models and predictions."""
    problem = passes.many.problem
    holders = [Holder(task.client, None, received.task.counts[0]) for task in tasks]
    models = own_models(problem, server, holders, [None, None])
    found = passes.run(measured, models, Data(problem.samples, [task.indices for task in tasks]))
    for place, task in enumerate(tasks):
        expected = run_passes(
            measured,
            problem.network,
            own_model(problem, server, None),
            problem.samples,
            task.indices,
            counts=received.task.counts[0],
            server=server.extra,
            client={name: init(problem.start) for name, init in problem.method.client_state.items()},
            logits=problem.method.own.logits,
        )
        _compare_passes(problem, each_state(found, len(tasks))[place], expected)


def _compare_passes(problem: Problem, found: Mapping[str, Tree], expected: Mapping[str, Tree]) -> None:
    for name, tree in expected.items():
        for key, leaf in tree.items():
            _compare(problem, f"the pass {name}", found[name][key], leaf)


def _compare(problem: Problem, what: str, found: Tensor, expected: Tensor) -> None:
    """Numbers that neither way is finite say nothing."""
    finite = expected.isfinite()
    gap = torch.where(finite, found.double() - expected.double(), 0)
    size = torch.where(finite, expected.double(), 0)
    tolerance = TOLERANCE if problem.network.autocast is None else ROUGHLY
    if not bool(gap.norm() <= tolerance * size.norm() + 1e-6):
        raise Unsupported(f"{what} gives other numbers side by side; it has to leave out what view.mask masks")


def _cut(task: ClientTask, samples: int, least: int) -> ClientTask:
    """A client's first step in every phase, on so many samples of it, and a pass over as many."""
    held, draws = task.indices[:samples], task.pass_draws
    return replace(
        task,
        num_samples=len(held),
        phases=tuple(tuple(_few(batch, samples, least) for batch in phase[:1]) for phase in task.phases),
        draw_indices=lambda: held,
        draw_pass=lambda: None if draws is None else draws[:samples],
    )


def _few(batch: Batch, samples: int, least: int) -> Batch:
    size = max(samples, least)
    return Batch(
        batch.indices[:size],
        None if batch.draws is None else batch.draws[:size],
        None if batch.noise is None else batch.noise[:size],
        None if batch.then is None else _few(batch.then, samples, least),
    )
