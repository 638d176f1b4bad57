"""Objects from Python that stand where a configuration has names: the data set and the model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from fedblade.config.run_config import FROM_PYTHON, RunConfig
from fedblade.data import Dataset, as_dataset
from fedblade.models import user_module


@dataclass(frozen=True)
class GivenObjects:
    """The data set and the model that were passed as objects; None where the configuration names them."""

    data: Dataset | None = None
    model: nn.Module | None = None

    def __bool__(self) -> bool:
        """Whether there is any object, which only this process has."""
        return self.data is not None or self.model is not None

    def dataset(self, config: RunConfig) -> Dataset | None:  # noqa: ARG002
        """The data set of a run with this configuration, None if the configuration names it."""
        return self.data


def take_objects(overrides: dict[str, Any]) -> GivenObjects:
    """The objects among the overrides, converted. In `overrides` they are replaced by `FROM_PYTHON`."""
    return GivenObjects(_take(overrides, "dataset", as_dataset), _take(overrides, "model", user_module))


def _take(overrides: dict[str, Any], key: str, convert: Callable[[Any], Any]) -> Any:
    value = overrides.get(key)
    # A Hugging Face DatasetDict is a mapping too, but no table of settings.
    if value is None or isinstance(value, str) or (isinstance(value, Mapping) and not hasattr(value, "column_names")):
        return None
    overrides[key] = FROM_PYTHON
    return convert(value)
