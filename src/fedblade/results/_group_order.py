"""The order of groups, and with it their colours: the same in tables, on pages and in figures."""

from collections.abc import Mapping

from fedblade.presets.names import names_in_papers
from fedblade.results._record import RunRecord

SKEW_LEVELS = ("alpha", "classes_per_client", "shards_per_client")
"""Settings of partitions that say how skewed a split is."""

SortKey = tuple[float | str | tuple[tuple[str, float, str], ...], ...]


def sort_key(run: RunRecord, settings: Mapping[str, str]) -> SortKey:
    """Sorts runs by method and by data set as papers list them, then by skew from strong to weak.

    All other settings follow, numbers by their size, so that the order does not depend on where the runs lie.
    """
    names, method = names_in_papers(), run.part("method")
    split = run.part("partition")
    levels = (setting_number(settings, f"partition.{key}") for key in SKEW_LEVELS)
    return (
        _rank(method.partition("+")[0].removesuffix("-ft"), names["method"]) + 0.5 * ("+" in method),
        method,
        _rank(run.part("dataset"), names["dataset"]),
        {"iid": "~"}.get(split, split),
        next((value for value in levels if value is not None), 0.0),
        setting_number(settings, "federation.num_clients") or 0.0,
        tuple((key, setting_number(settings, key) or 0.0, text) for key, text in sorted(settings.items())),
    )


def setting_number(settings: Mapping[str, str], key: str) -> float | None:
    """A setting as a number, None where it is missing or no number."""
    try:
        return float(settings[key])
    except (KeyError, ValueError):
        return None


def _rank(name: str, names: Mapping[str, str]) -> float:
    return float(list(names).index(name)) if name in names else float(len(names))
