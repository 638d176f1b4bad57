"""Notes for the user before the first round."""

from collections.abc import Mapping
from typing import Any

from fedblade.core.words import plural
from fedblade.runs._ending import STOPPED
from fedblade.runs._own_data_notes import own_data_notes
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


def end_notes(summary: Mapping[str, Any]) -> list[str]:
    """Say why a run has ended before its last round; nothing if it has not."""
    if summary["status"] == "interrupted":
        done = plural(summary["rounds"], "round")
        return [
            f"interrupted: the result has the {done} that were complete. Nothing was written, so the run cannot go on."
        ]
    stopped = summary.get(STOPPED)
    return [] if stopped is None else [f"{stopped['text']}."]
