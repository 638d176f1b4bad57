"""What is assumed of data that the user gave: how they are scaled, and how they are divided among clients."""

from fedblade.config.run_config import FROM_PYTHON, RunConfig
from fedblade.config.settings import LEVELS, show
from fedblade.data import Dataset, status


def own_data_notes(config: RunConfig, dataset: Dataset) -> list[str]:
    """One line each on scaling and on the division; nothing for a data set of the library."""
    name = config.dataset.name
    if name != FROM_PYTHON and (config.dataset.is_own or status(name).state != "yours"):
        return []
    return [*_scaling(dataset), *_division(config)]


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
