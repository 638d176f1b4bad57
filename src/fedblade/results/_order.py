"""The one order of methods, and with it their colours: in tables, on pages and in figures."""

from collections.abc import Mapping

from fedblade.presets.names import names_in_papers
from fedblade.results._record import RunRecord

_LEVELS = ("alpha", "classes_per_client", "shards_per_client")

Key = tuple[float | str | tuple[tuple[str, float, str], ...], ...]


def published_names() -> dict[str, Mapping[str, str]]:
    """How papers call methods, regularisers, data sets and models, in the order in which they list them."""
    return {kind: names_in_papers()[kind] for kind in ("method", "regulariser", "dataset", "model")}


def place(run: RunRecord, flat: Mapping[str, str]) -> Key:
    """What to sort a run by: its method as papers list them, its data set, its skew from strong to weak.

    Then by every setting, numbers by their size: wherever the runs lie and whoever reads them, the order is the same.
    """
    names, method = published_names(), run.part("method")
    split = run.part("partition")
    levels = (setting_number(flat, f"partition.{key}") for key in _LEVELS)
    return (
        _rank(method.partition("+")[0].removesuffix("-ft"), names["method"]) + 0.5 * ("+" in method),
        method,
        _rank(run.part("dataset"), names["dataset"]),
        {"iid": "~"}.get(split, split),
        next((value for value in levels if value is not None), 0.0),
        setting_number(flat, "federation.num_clients") or 0.0,
        tuple((key, setting_number(flat, key) or 0.0, text) for key, text in sorted(flat.items())),
    )


def setting_number(flat: Mapping[str, str], key: str) -> float | None:
    """A setting as a number, None where it is none."""
    try:
        return float(flat[key])
    except (KeyError, ValueError):
        return None


def _rank(name: str, names: Mapping[str, str]) -> float:
    return float(list(names).index(name)) if name in names else float(len(names))
