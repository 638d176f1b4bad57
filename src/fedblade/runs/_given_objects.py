"""Objects from Python that stand where a configuration has names: the data set and the model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from fedblade.config.run_config import FROM_PYTHON, RunConfig
from fedblade.core.errors import Misconfigured
from fedblade.data import ClientData, Dataset, as_dataset
from fedblade.models import user_module

_SETTINGS = (str, int, float, list, Mapping, type(None))
"""Types of the values of settings."""


@dataclass(frozen=True)
class GivenObjects:
    """The data set (or data of clients) and the model that were passed as objects; None where names stand for them."""

    data: Dataset | ClientData | None = None
    model: nn.Module | None = None

    def __bool__(self) -> bool:
        """Whether there is any object, which only this process has."""
        return self.data is not None or self.model is not None

    def dataset(self, config: RunConfig) -> Dataset | None:
        """The data set of a run with this configuration, None if the configuration names it."""
        return self.data.dataset(config.split_seed) if isinstance(self.data, ClientData) else self.data


def take_objects(overrides: dict[str, Any]) -> GivenObjects:
    """The objects among the overrides, converted. In `overrides` they are replaced by `FROM_PYTHON`.

    Of `clients`, their names stay in the overrides.
    """
    clients = _take_clients(overrides)
    data = _take(overrides, "dataset", as_dataset) if clients is None else clients
    return GivenObjects(data, _take(overrides, "model", user_module))


def _take_clients(overrides: dict[str, Any]) -> ClientData | None:
    given = overrides.get("clients")
    if given is None:
        return None
    if "dataset" in overrides or "dataset.name" in overrides:
        raise Misconfigured(
            "clients and dataset were both given; expected one of them. Give clients={…} for data that are divided "
            "already, and dataset=… for one data set to divide."
        )
    data = ClientData.of(given)
    overrides |= {"clients": data.names, "dataset": FROM_PYTHON}
    return data


def _take(overrides: dict[str, Any], key: str, convert: Callable[[Any], Any]) -> Any:
    value = overrides.get(key)
    # A Hugging Face DatasetDict is a mapping too, but no table of settings.
    if value is None or isinstance(value, str):
        return None
    if isinstance(value, Mapping) and not hasattr(value, "column_names"):
        _check_settings(key, value)
        return None
    overrides[key] = FROM_PYTHON
    return convert(value)


def _check_settings(key: str, table: Mapping[Any, Any]) -> None:
    """Refuse a dict of data: a dict holds settings."""
    wrong = next((name for name, value in table.items() if not isinstance(value, _SETTINGS)), None)
    if wrong is not None:
        raise Misconfigured(
            f"{key} is a dict in which {wrong!r} is of type {type(table[wrong]).__name__}; a dict holds settings, such "
            f"as {key}={{'name': …}}. Give data as dataset=(x, y) or dataset=(x, y, x_test, y_test), and data of "
            f"clients as clients={{'north': (x, y), …}}."
        )
