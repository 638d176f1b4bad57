"""From a configuration to everything that a run needs: data, split, network, problem, planner, engine."""

from dataclasses import dataclass, field, replace
from functools import cached_property

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
from fedblade.core.plan import IntArray, Planner
from fedblade.core.problem import LocalSettings, Problem
from fedblade.core.registry import metrics as metrics_registry
from fedblade.core.samples import Samples
from fedblade.core.state import ServerState
from fedblade.core.streams import Stream, Streams
from fedblade.data import Dataset, apply_recipe, to_samples
from fedblade.engines.base import Engine
from fedblade.partitions import ClientTests
from fedblade.runs._claims import Claims
from fedblade.runs._cohorts import Cohorts, check_participation, hold_unseen
from fedblade.runs._device import find_device
from fedblade.runs._engine_choice import choose_engine
from fedblade.runs._network import make_network
from fedblade.runs._rhythm import diagnostics_rhythm
from fedblade.runs._split import (
    choose_evaluated_clients,
    client_names,
    hold_out_validation,
    named_dataset,
    split_clients,
)


@dataclass(frozen=True)
class Setup:
    """A run that is ready to start.

    `clients` holds the split and the samples that every client's personal model is measured on. `test` and `test_order`
    are the samples that the global model is measured on, in a fixed order, and `test_groups` is the group of every
    sample in that order. With `evaluation.on = "validation"` all of these are training samples that were held out, and
    the test set is not used. `eligible` are the clients that cohorts are drawn from, `unseen` those that never train
    and are only evaluated, and `evaluated_clients` those of both whose models are measured one by one. `metrics` starts
    with accuracy; all are measured every `diagnostics_every` rounds. `claims` are the accuracies that nodes measure by
    themselves. `notes` are for the user, before the first round.
    """

    config: RunConfig
    dataset: Dataset
    clients: ClientTests
    problem: Problem
    planner: Planner
    engine: Engine
    cohorts: Cohorts
    eligible: IntArray
    unseen: IntArray
    evaluated_clients: IntArray
    test: Samples
    test_order: Tensor
    test_groups: IntArray | None
    metrics: tuple[Metric, ...]
    start: ServerState
    diagnostics_every: int = 1
    claims: Claims = field(default_factory=Claims)
    notes: tuple[str, ...] = ()

    @property
    def method(self) -> Method:
        """The method of the run."""
        return self.problem.method

    @property
    def accuracy(self) -> Metric:
        """The metric `accuracy`, which every run measures."""
        return self.metrics[0]

    @cached_property
    def client_names(self) -> tuple[str, ...] | None:
        """The names of the clients; None if they have only numbers."""
        return client_names(self.dataset, self.clients.train)

    @property
    def personal_test_samples(self) -> Samples:
        """The samples that personal models are measured on: `clients.part(client)` are indices into them."""
        return self.test if self.clients.source == "test" else replace(self.problem.samples, augment=None)


def prepare(
    config: RunConfig,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
    clients: ClientTests | None = None,
) -> Setup:
    """Build a run. `dataset` and `model` are objects from Python; a node that has its own data gives its `clients`."""
    dataset = named_dataset(config) if dataset is None else dataset
    clients = split_clients(config, dataset) if clients is None else clients
    dataset, augment = apply_recipe(dataset, config.dataset_settings.augment)
    device, dtype = find_device(config.general.device), getattr(torch, config.general.dtype)
    train, streams = to_samples(dataset, dataset.train, device, dtype, augment), Streams(config.general.seed)
    clients, test, order, groups = _hold_out_test(config, dataset, train, clients)
    eligible, unseen = _eligible(config, clients, streams)
    problem, start, model_notes = _build_problem(config, dataset, train, streams, model, len(unseen))
    check_participation(config, problem.method, clients)
    planner, metrics = _build_planner(config, problem, clients, streams, eligible), _make_metrics(config)
    engine, engine_notes = choose_engine(config, problem, start, planner, eligible, metrics, model)
    return Setup(
        config=config,
        dataset=dataset,
        clients=clients,
        problem=problem,
        planner=planner,
        engine=engine,
        cohorts=Cohorts.of(config, problem.method, eligible, clients.train.sizes),
        eligible=eligible,
        unseen=unseen,
        evaluated_clients=choose_evaluated_clients(config.general.seed, np.union1d(eligible, unseen)),
        test=test,
        test_order=torch.from_numpy(order).to(device),
        test_groups=groups,
        metrics=metrics,
        start=start,
        diagnostics_every=diagnostics_rhythm(config, problem, start, planner, metrics, len(order)),
        notes=(*config.notes, *dataset.notes, *model_notes, *engine_notes),
    )


def _hold_out_test(
    config: RunConfig, dataset: Dataset, train: Samples, clients: ClientTests
) -> tuple[ClientTests, Samples, IntArray, IntArray | None]:
    """The split without validation samples, and the samples that the model is measured on: their order and groups."""
    if config.evaluation.on == "validation":
        clients, order = hold_out_validation(config, clients)
        test, groups = replace(train, augment=None, reader=None), dataset.train.groups
    else:
        test = to_samples(dataset, dataset.test, train.labels.device, train.dtype, None)
        order = Streams(config.general.seed).numpy(Stream.EVALUATION_ORDER).permutation(len(test))
        groups = dataset.test.groups
    return clients, test, order, None if groups is None else groups[order]


def _make_metrics(config: RunConfig) -> tuple[Metric, ...]:
    """Accuracy first, then the metrics of the configuration, without repetitions."""
    names = dict.fromkeys(("accuracy", *config.evaluation.metrics))
    return tuple(_checked_metric(name, metrics_registry.get(name).build()) for name in names)


def _checked_metric(name: str, metric: object) -> Metric:
    if not isinstance(metric, Metric):
        raise Misconfigured(f"metric '{name}' returned a {type(metric).__name__}; expected a fedblade.api.Metric.")
    return metric


def _eligible(config: RunConfig, clients: ClientTests, streams: Streams) -> tuple[IntArray, IntArray]:
    """The clients with data: those that cohorts are drawn from, enough of them for a cohort, and those held back."""
    with_data = clients.train.may_train()
    unseen = hold_unseen(streams, config.federation.unseen, with_data)
    eligible = np.setdiff1d(with_data, unseen)
    per_round = config.federation.clients_per_round
    if per_round > len(eligible):
        without = f", without the {len(unseen)} that federation.unseen holds back" if len(unseen) else ""
        raise Misconfigured(
            f"federation.clients_per_round = {per_round}, but only {len(eligible)} of {clients.train.num_clients} "
            f"clients have data{without}. Lower it, or split the data so that more clients have data."
        )
    return eligible, unseen


def _build_problem(
    config: RunConfig, dataset: Dataset, train: Samples, streams: Streams, model: nn.Module | None, num_unseen: int
) -> tuple[Problem, ServerState, tuple[str, ...]]:
    """The problem, the initial state of the server, and notes about the model for the user."""
    method = config.build_method()
    example, _ = train.batch(torch.zeros(1, dtype=torch.int64, device=train.labels.device))
    built = make_network(config, method, dataset.num_classes, example, model)
    network, params, buffers, fixed = built.network, built.params, built.buffers, built.fixed
    population = config.federation.num_clients - num_unseen
    view = InitView(params, network.dim, dataset.num_classes, population, buffers, fixed, streams)
    extra = {name: init(view) for name, init in method.server_state.items()}
    optimizer = config.optimizer
    settings = LocalSettings(
        momentum=optimizer.momentum,
        weight_decay=optimizer.weight_decay,
        clip=method.clip if optimizer.clip == "none" else optimizer.clip,
        persist=optimizer.persist,
    )
    return Problem(method, network, train, settings, view), ServerState(params, buffers, fixed, extra), built.notes


def plan_phases(config: RunConfig, phases: tuple[Phase, ...]) -> tuple[PhasePlan, ...]:
    """How long phases last in this run. If a phase sets its epochs, they go before those of the configuration."""
    return tuple(_plan_phase(config.local, phase) for phase in phases)


def _plan_phase(local: Local, phase: Phase) -> PhasePlan:
    if phase.epochs is not None or local.steps == "none":
        epochs = local.epochs if phase.epochs is None else phase.epochs
        return PhasePlan(epochs, phase.steps, phase.paired, phase.track)
    steps = local.steps if phase.steps is None else min(local.steps, phase.steps)
    return PhasePlan(None, steps, phase.paired, phase.track)


def _build_planner(
    config: RunConfig, problem: Problem, clients: ClientTests, streams: Streams, eligible: IntArray
) -> Planner:
    method = problem.method
    sizes = clients.train.sizes()
    sizes = sizes[eligible] if config.federation.unseen else sizes
    sums = (*method.sums, *(exchanged for exchange in method.exchanges for exchanged in exchange.sums))
    return Planner(
        streams=streams,
        shards=clients.train,
        phases=plan_phases(config, method.phases),
        batch_size=config.local.batch_size,
        last_batch=config.local.last_batch,
        weighting=config.federation.weighting,
        mean_samples=float(sizes.sum() / max(np.count_nonzero(sizes), 1)),
        skip_singletons=problem.network.skips_singletons,
        num_draws=problem.samples.num_draws,
        augmented_pass=any(data_pass.augmented for declared in sums for data_pass in declared.passes),
        device=problem.samples.labels.device,
        noise=method.noise,
        partial_work=config.federation.partial_work,
    )
