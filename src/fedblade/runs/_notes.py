"""Notes for the user before the first round."""

from fedblade.runs._setup import Setup
from fedblade.runs._split import MAX_EVALUATED_CLIENTS
from fedblade.runs._tuning import tuning_stages


def start_notes(setup: Setup) -> list[str]:
    """Notes about the data, the model and the engine, and about what takes long in a large population."""
    return [*setup.notes, *_population_notes(setup), *_evaluation_notes(setup)]


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
