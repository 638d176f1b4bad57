"""From a configuration to everything a run needs: data, split, network, problem, planner, engine."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from fedblade.config.run_config import RunConfig
from fedblade.config.schema import Local
from fedblade.core.errors import Misconfigured
from fedblade.core.lengths import PhasePlan
from fedblade.core.method import InitView, Method
from fedblade.core.metric import Metric
from fedblade.core.phase import Phase
from fedblade.core.plan import IntArray, Planner, draw_cohorts
from fedblade.core.problem import LocalSettings, Problem
from fedblade.core.registry import metrics
from fedblade.core.samples import Samples
from fedblade.core.state import ServerState
from fedblade.core.streams import Stream, Streams
from fedblade.data import Dataset, apply_recipe, as_dataset, to_samples
from fedblade.engines.base import Engine
from fedblade.partitions import VALIDATION, ClientTests, Partitioner, Parts, hold_out, split_test
from fedblade.runs._engine_choice import choose_engine
from fedblade.runs._network import make_network

MOST_MEASURED = 10_000
"""Clients whose own models are measured; where there are more, the mean is over a random choice of so many."""
_VALIDATION_PERCENT = 10


@dataclass(frozen=True)
class Setup:
    """A run ready to start.

    `test` and `test_order` are the samples that are measured, in a fixed shuffle, and `test_groups` the group of each
    in that order. `clients` holds the split and each client's own part to be measured on. With
    `evaluation.on = "validation"` all of these are training samples held back, and the test set is not looked at.
    `eligible` are the clients with data, and `measured` those of them whose own models are measured.
    `notes` are for the user, before the first round.
    """

    config: RunConfig
    dataset: Dataset
    clients: ClientTests
    problem: Problem
    planner: Planner
    engine: Engine
    cohorts: list[IntArray]
    eligible: IntArray
    measured: IntArray
    test: Samples
    test_order: Tensor
    test_groups: IntArray | None
    metrics: tuple[Metric, ...]
    start: ServerState
    notes: tuple[str, ...] = ()

    @property
    def method(self) -> Method:
        """The method value of the run."""
        return self.problem.method


def find_device(name: str) -> torch.device:
    """The device a configuration asks for; `auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise Misconfigured(f"device = '{name}' is unknown; expected auto, cpu, cuda or cuda:N.") from error
    if device.type not in ("cpu", "cuda"):
        raise Misconfigured(f"device = '{name}' is not supported; expected auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise Misconfigured(
            f"device = '{name}' was asked for, but torch sees {torch.cuda.device_count()} CUDA device(s) here. "
            f"Use device=auto or device=cpu; `fedblade doctor` says what was found."
        )
    return device


def split_clients(config: RunConfig, dataset: Dataset) -> ClientTests:
    """Deal the training set to clients and say what each is tested on."""
    return give_tests(config, dataset, deal_samples(config, dataset))


def deal_samples(config: RunConfig, dataset: Dataset) -> Parts:
    """Deal the whole training set to clients, before anything is held out of it."""
    partitioner: Partitioner = config.partition.make()
    return partitioner.split(
        dataset.train.labels,
        config.federation.num_clients,
        config.split_seed,
        num_classes=dataset.num_classes,
        groups=dataset.train.groups,
    )


def give_tests(config: RunConfig, dataset: Dataset, split: Parts) -> ClientTests:
    """Say what each client of a split is tested on."""
    kind, seed = config.dataset_settings.test_split, config.split_seed
    return split_test(kind, split, dataset.test.labels, seed, test_groups=dataset.test.groups)


def shuffled(seed: int, indices: IntArray) -> IntArray:
    """The samples in a fixed random order, so that batches mix classes; statistics of a batch depend on its mix."""
    return Streams(seed).numpy(Stream.EVALUATION_ORDER, 1).permutation(indices)


def hold_validation(config: RunConfig, clients: ClientTests) -> tuple[ClientTests, IntArray]:
    """The clients with the part of their data that tuning measures on held back, and all such samples, shuffled."""
    held = hold_out(clients.train, config.split_seed, _VALIDATION_PERCENT, VALIDATION)
    if len(held.order) == 0:
        raise Misconfigured(
            f"evaluation.on = 'validation' holds {_VALIDATION_PERCENT} % of each client's data back, but no client has "
            f"enough samples. Use fewer clients or evaluation.on = 'test'."
        )
    return held, shuffled(config.general.seed, held.order)


def choose_measured(seed: int, eligible: IntArray) -> IntArray:
    """Whose own models are measured: everyone's, or in a larger population those of a fixed random choice."""
    if len(eligible) <= MOST_MEASURED:
        return eligible
    chosen = Streams(seed).numpy(Stream.MEASURED_CLIENTS).choice(len(eligible), MOST_MEASURED, replace=False)
    return np.sort(eligible[chosen])


def prepare(
    config: RunConfig,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
    clients: ClientTests | None = None,
) -> Setup:
    """Build a run; `dataset` and `model` are objects a user passed instead of names.

    `clients` says who holds what where that is known and nothing is to be dealt.
    """
    dataset = as_dataset(config.dataset.make()) if dataset is None else dataset
    device, dtype = find_device(config.general.device), getattr(torch, config.general.dtype)
    clients = split_clients(config, dataset) if clients is None else clients
    dataset, augment = apply_recipe(dataset, config.dataset_settings.augment)
    train = to_samples(dataset, dataset.train, device, dtype, augment)
    test = to_samples(dataset, dataset.test, device, dtype, None)
    streams = Streams(config.general.seed)
    order, measured = streams.numpy(Stream.EVALUATION_ORDER).permutation(len(test)), dataset.test
    if config.evaluation.on == "validation":
        clients, order = hold_validation(config, clients)
        test, measured = replace(train, augment=None, reader=None), dataset.train
    problem, start, found = _build_problem(config, dataset, train, streams, model)
    sizes = clients.train.sizes()
    eligible = np.flatnonzero(sizes > 0)
    mean_samples = float(sizes.sum() / max(len(eligible), 1))
    per_round = config.federation.clients_per_round
    if per_round > len(eligible):
        raise Misconfigured(
            f"federation.clients_per_round = {per_round}, but only {len(eligible)} of {len(sizes)} clients have data. "
            f"Lower it, or split the data so that more clients have some."
        )
    planner = _build_planner(config, problem, clients, streams, mean_samples)
    chosen = tuple(metrics.get(name).make() for name in dict.fromkeys(("accuracy", *config.evaluation.metrics)))
    engine, notes = choose_engine(config, problem, start, planner, eligible, chosen, model)
    return Setup(
        config=config,
        dataset=dataset,
        clients=clients,
        problem=problem,
        planner=planner,
        engine=engine,
        cohorts=draw_cohorts(streams, eligible, per_round, config.federation.rounds),
        eligible=eligible,
        measured=choose_measured(config.general.seed, eligible),
        test=test,
        test_order=torch.from_numpy(order).to(device),
        test_groups=None if measured.groups is None else measured.groups[order],
        metrics=chosen,
        start=start,
        notes=(*dataset.notes, *found, *notes),
    )


def _build_problem(
    config: RunConfig, dataset: Dataset, train: Samples, streams: Streams, model: nn.Module | None
) -> tuple[Problem, ServerState, tuple[str, ...]]:
    """Network, initial state, and what to tell the user of the model."""
    method = config.build_method()
    example, _ = train.batch(torch.zeros(1, dtype=torch.int64, device=train.labels.device))
    autocast = torch.bfloat16 if config.general.autocast == "bf16" else None
    made = make_network(config, method, dataset.num_classes, dataset.input_shape, example, model, autocast=autocast)
    network, params, buffers, fixed = made.network, made.params, made.buffers, made.fixed
    view = InitView(params, network.dim, dataset.num_classes, config.federation.num_clients, buffers, fixed, streams)
    extra = {name: init(view) for name, init in method.server_state.items()}
    optimizer = config.optimizer
    settings = LocalSettings(
        momentum=optimizer.momentum,
        weight_decay=optimizer.weight_decay,
        clip=method.clip if optimizer.clip == "none" else optimizer.clip,
        persist=optimizer.persist,
    )
    return Problem(method, network, train, settings, view), ServerState(params, buffers, fixed, extra), made.notes


def plan_phases(config: RunConfig, phases: tuple[Phase, ...]) -> tuple[PhasePlan, ...]:
    """How long phases last in this run; a phase with epochs of its own keeps them."""
    return tuple(_plan_phase(config.local, phase) for phase in phases)


def _plan_phase(local: Local, phase: Phase) -> PhasePlan:
    if phase.epochs is not None or local.steps == "none":
        epochs = local.epochs if phase.epochs is None else phase.epochs
        return PhasePlan(epochs, phase.steps, phase.paired, phase.track)
    steps = local.steps if phase.steps is None else min(local.steps, phase.steps)
    return PhasePlan(None, steps, phase.paired, phase.track)


def _build_planner(
    config: RunConfig, problem: Problem, clients: ClientTests, streams: Streams, mean_samples: float
) -> Planner:
    method = problem.method
    declared = (*method.sums, *(each for exchange in method.exchanges for each in exchange.sums))
    needed = [each for one in declared for each in one.passes]
    return Planner(
        streams=streams,
        shards=clients.train,
        phases=plan_phases(config, method.phases),
        batch_size=config.local.batch_size,
        last_batch=config.local.last_batch,
        weighting=config.federation.weighting,
        mean_samples=mean_samples,
        skip_singletons=problem.network.skips_singletons,
        num_draws=problem.samples.num_draws,
        augmented_pass=any(each.augmented for each in needed),
        device=problem.samples.labels.device,
        noise=method.noise,
    )
