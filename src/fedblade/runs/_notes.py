"""Notes for the user: before the first round, and about the end of a run."""

from collections.abc import Mapping
from typing import Any

from fedblade.config.run_config import FROM_PYTHON, RunConfig
from fedblade.config.settings import LEVELS, show
from fedblade.core.words import plural
from fedblade.data import Dataset, status
from fedblade.runs._ending import STOPPED
from fedblade.runs._setup import Setup
from fedblade.runs._split import MAX_EVALUATED_CLIENTS
from fedblade.runs._tuning import tuning_stages


def start_notes(setup: Setup) -> list[str]:
    """Notes about the data, the model and the engine, and about what takes long in a large population."""
    return [
        *setup.notes,
        *own_data_notes(setup.config, setup.dataset),
        *_population_notes(setup),
        *_evaluation_notes(setup),
        *_rhythm_notes(setup),
        *_patience_notes(setup),
    ]


def end_notes(summary: Mapping[str, Any]) -> list[str]:
    """Say why a run has ended before its last round; nothing if it has not."""
    if summary["status"] == "interrupted":
        done = plural(summary["rounds"], "round")
        return [
            f"interrupted: the result has the {done} that were complete. Nothing was written, so the run cannot go on."
        ]
    stopped = summary.get(STOPPED)
    return [] if stopped is None else [f"{stopped['text']}."]


def own_data_notes(config: RunConfig, dataset: Dataset) -> list[str]:
    """One line each on scaling and on the division; nothing for a data set of the library."""
    name = config.dataset.name
    if name != FROM_PYTHON and (config.dataset.is_own or status(name).state != "yours"):
        return []
    return [*_scaling(dataset), *_division(config)]


def _rhythm_notes(setup: Setup) -> list[str]:
    """Say which metrics are measured when, if the library has decided that."""
    chosen, every = setup.config.evaluation, setup.diagnostics_every
    if chosen.diagnostics_every != "auto" or every == 1:
        return []
    return [
        f"accuracy is measured after {_every(chosen.every)}; the other metrics cost much on these data and are "
        f"measured after every {every}th round and the last one (evaluation.diagnostics_every=1: after every round)"
    ]


def _patience_notes(setup: Setup) -> list[str]:
    """Warn of a run that would choose its last round on the test set."""
    if setup.config.stop.patience == "none" or setup.config.evaluation.on == "validation":
        return []
    return [
        "stop.patience looks at the test set, so the accuracy at the end is optimistic. evaluation.on=validation "
        "holds a tenth of every client's training data back and looks at that"
    ]


def _every(number: int) -> str:
    return "every round" if number == 1 else f"one round in {number}"


def _population_notes(setup: Setup) -> list[str]:
    """Warn of work that grows with the number of all clients, not only with the cohort."""
    method, population = setup.method, len(setup.eligible)
    if population <= MAX_EVALUATED_CLIENTS:
        return []
    work = ["every client trains in every round"] if method.participation == "all" else []
    if any(exchange.clients == "all" for exchange in method.exchanges):
        work.append("every client is asked for sums")
    name = setup.config.method.name
    return [f"{name}: {what}, and there are {population:,} of them; this takes long" for what in work]


def _evaluation_notes(setup: Setup) -> list[str]:
    """Say how many clients' personal models are measured, if personal models are measured and not all of them."""
    evaluated, population = len(setup.evaluated_clients), len(setup.eligible) + len(setup.unseen)
    stages = tuning_stages(setup.method, setup.config.evaluation.protocol)
    if evaluated == population or (stages is None and setup.method.accuracy_of != "personal"):
        return []
    return [f"the clients' personal models are measured on {evaluated:,} of {population:,} clients, chosen at random"]


def _scaling(dataset: Dataset) -> list[str]:
    """How inputs are scaled, where the reader of the data has not said so."""
    if dataset.encoding is not None:
        columns, width = len(dataset.encoding.columns), dataset.encoding.width
        return [
            f"inputs: {columns} columns become {width} inputs; numbers are standardised with mean and deviation of the "
            f"training samples, and a text gives one input for each category"
        ]
    if any(value != 0.0 for value in dataset.mean):
        unit = f"divided by {dataset.unit:g} and " if dataset.unit != 1.0 else ""
        return [f"inputs: {unit}standardised with mean and deviation of the training samples"]
    if dataset.unit == 1.0 and dataset.train.inputs.dtype.kind == "f" and dataset.value_range is not None:
        low, high = dataset.value_range
        return [f"inputs: used in their own scale, from {low:.4g} to {high:.4g}"]
    return []


def _division(config: RunConfig) -> list[str]:
    """How samples of one data set are divided, if a rule with a level of skew divides them."""
    partition = config.partition
    level = LEVELS.get(partition.name)
    if level is None:
        return []
    return [
        f"clients: the samples are divided among {config.federation.num_clients} clients by {partition.name} with "
        f"{level} = {show(partition.knobs[level])}, so that clients see different labels; partition=iid divides evenly"
    ]
