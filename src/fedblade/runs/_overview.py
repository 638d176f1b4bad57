"""A run in a few words, for its listeners."""

from fedblade.config.run_config import RunConfig
from fedblade.core.listener import RunOverview
from fedblade.core.words import plural
from fedblade.runs._setup import Setup


def overview(setup: Setup) -> RunOverview:
    """The overview of a run that is set up on this machine."""
    everyone = setup.method.participation == "all"
    cohort = len(setup.eligible) if everyone else setup.config.federation.clients_per_round
    where = f"engine {setup.engine.name} on {setup.test_order.device}"
    return overview_of(setup.config, setup.dataset.name, where, cohort)


def overview_of(config: RunConfig, dataset: str, where: str, clients_per_round: int) -> RunOverview:
    """The overview of any run. `where` says what computes the run, such as `engine stacked on cpu`."""
    federation, local = config.federation, config.local
    length = plural(local.epochs, "local epoch") if local.steps == "none" else plural(local.steps, "local step")
    description = (
        f"{config.method.name} on {dataset}: {config.model.name}, {config.partition.name} over "
        f"{plural(federation.num_clients, 'client')}, {federation.clients_per_round} per round, "
        f"{plural(federation.rounds, 'round')} of {length}, seed {config.general.seed}, {where}"
    )
    return RunOverview(description, config.method.name, federation.rounds, clients_per_round)
