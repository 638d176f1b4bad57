"""How many clients there are where the data say it, and cohorts that would be larger than the population."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedblade.config.run_config import FROM_PYTHON, is_registered
from fedblade.config.schema import unseen_clients
from fedblade.config.settings import NOTES, REGISTRIES, Notes, Raw, lookup, setting
from fedblade.core.errors import Misconfigured
from fedblade.core.words import plural, short_listing

GIVEN = "given"
"""The partition of data that come divided among clients."""
OWN_TESTS = "proportional"
"""The test split that gives every client the test samples of its group: here, its own ones."""
_POPULATION, _COHORT = "federation.num_clients", "federation.clients_per_round"


def clients_from_python(overrides: dict[str, Any]) -> tuple[str, ...] | None:
    """Take the names of clients out of the overrides, which have them if data of clients were passed from Python."""
    names = overrides.pop("clients", None)
    if names is None or isinstance(names, tuple):
        return names
    raise Misconfigured(
        f"clients = {names!r} is no data of clients. In Python give clients={{'north': (x, y), 'south': (x, y)}}, on "
        f"the command line dataset=clients and dataset.path=FOLDER. num_clients is the number of clients."
    )


def settle_population(
    before: Mapping[str, Any], config: Raw, keys: Collection[str], names: Sequence[str] | None = None
) -> None:
    """Set in `config` what follows from the clients of the data, and lower a cohort that is larger than the population.

    `config` is made of the tables `before` and of overrides of the dotted `keys`. `names` are clients whose data were
    passed from Python. An override that contradicts the data is refused. The same holds for tables that name the data
    of clients themselves; what other tables say of their population does not count.
    """
    names = _clients_of(config) if names is None else names
    if names is not None:
        _take_clients(before, config, keys, names)
    _lower_cohort(before, config, keys)


def _clients_of(config: Raw) -> Sequence[str] | None:
    """The clients of a data set that comes divided among clients; None for all other data sets."""
    table = config.get("dataset", {})
    name = table.get("name", FROM_PYTHON)
    entry = REGISTRIES["dataset"].get(name) if is_registered("dataset", name) else None
    if entry is None or entry.clients is None:
        return None
    return entry.clients(**{key: value for key, value in table.items() if key in entry.knobs()})


def _take_clients(before: Mapping[str, Any], config: Raw, keys: Collection[str], names: Sequence[str]) -> None:
    partition = config.get("partition", {})
    named_before = lookup(before, "dataset") == lookup(config, "dataset")
    divides = (named_before or "partition" in keys) and partition.get("name", GIVEN) != GIVEN
    knobs = [key for key in keys if key.startswith("partition.") and key != "partition.seed"]
    if divides or knobs:
        refused = knobs[0] if knobs else f"partition = '{partition['name']}'"
        raise Misconfigured(
            f"{refused} is for dividing one data set, and these data come from {plural(len(names), 'client')} "
            f"({short_listing(names)}). Leave it out, or give all samples as one data set."
        )
    config["partition"] = {"name": GIVEN} | {key: value for key, value in partition.items() if key == "seed"}
    federation = config.setdefault("federation", {})
    stated = federation.get("num_clients") if named_before or _POPULATION in keys else None
    if stated not in (None, len(names)):
        raise Misconfigured(
            f"{_POPULATION} = {stated!r}, but the data come from {plural(len(names), 'client')} "
            f"({short_listing(names)}). Leave num_clients out, or give the data of so many clients."
        )
    federation["num_clients"] = len(names)
    dataset = config["dataset"]
    if not ("dataset.test_split" in keys or (named_before and "test_split" in dataset)):
        dataset["test_split"] = OWN_TESTS


def _lower_cohort(before: Mapping[str, Any], config: Raw, keys: Collection[str]) -> None:
    """Lower the clients per round to those that there are, unless an override or contradictory tables ask for more."""
    cohort, there = setting(config, _COHORT), _available(config)
    stated = lookup(before, _COHORT)
    contradictory = stated is not None and _exceeds(stated, _available(before))
    if there is None or _COHORT in keys or contradictory or not _exceeds(cohort, there):
        return
    config.setdefault("federation", {})["clients_per_round"] = there
    config[NOTES] = Notes(
        (f"{_COHORT} is lowered from {cohort} to {there}, because no more than {plural(there, 'client')} can train",)
    )


def _available(config: Mapping[str, Any]) -> int | None:
    """The clients that may train; None where the settings are no numbers, which is refused elsewhere."""
    population, share = setting(config, _POPULATION), setting(config, "federation.unseen")
    if type(population) is not int or not isinstance(share, int | float) or not 0 <= share < 1:
        return None
    return population - unseen_clients(share, population)


def _exceeds(cohort: Any, there: int | None) -> bool:
    return type(cohort) is int and there is not None and 0 < there < cohort
