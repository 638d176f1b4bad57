"""The configuration of an app: that of a run, and the terms of its deployment in the table `flower`."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from fedblade.config.run_config import RunConfig, complete_config
from fedblade.config.schema import Section
from fedblade.config.validation import check_keys, validate
from fedblade.core.errors import Misconfigured

FILE = "fedblade.toml"
TABLE = "flower"


class Deployment(Section):
    """The terms on which clients take part.

    With `data` "shares" every node holds its client's share of the run's data set, for rehearsals; with "nodes" every
    node has data of its own, in `num_classes` classes. `test` is an .npz file on the server, on whose x_test and y_test
    the global model is measured; without it nodes measure on their own test samples, and clients' own models always
    there. A run begins when all clients have a node, or fails after `wait_seconds`. A round ends when all of its
    clients have answered, or after `round_seconds` if a `quorum` of them has; otherwise those that are missing are
    asked again, `attempts` times in all. `order` "fixed" adds replies in the order of the clients' ids, so that the
    same replies give the same model to the last bit. A client's update, times its weight if that is above 1, may be at
    most `max_norm` times as long as the model; a model shorter than 1 counts as 1.
    """

    data: Literal["shares", "nodes"] = "shares"
    num_classes: Annotated[int, Field(ge=0)] = 0
    test: str = ""
    wait_seconds: Annotated[float, Field(gt=0)] = 600.0
    round_seconds: Annotated[float, Field(gt=0)] = 600.0
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.5
    attempts: Annotated[int, Field(gt=0)] = 3
    order: Literal["fixed", "arrival"] = "fixed"
    max_norm: Annotated[float, Field(gt=0)] = 100.0


def read_app(folder: Path) -> tuple[RunConfig, Deployment]:
    """The checked configuration of the app in a folder."""
    path = folder / FILE
    if not path.is_file():
        raise Misconfigured(f"'{folder}' has no {FILE}, so it is no app of ours. Make one: fedblade flower init DIR.")
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"'{path}' is not valid TOML: {error}. Mend the file.") from error
    return split_tables(raw)


def split_tables(raw: dict[str, Any]) -> tuple[RunConfig, Deployment]:
    """The run and its deployment, from the tables of one file."""
    own = raw.pop(TABLE, {})
    if not isinstance(own, dict):
        raise Misconfigured(f"{TABLE} = {own!r} is not a table; expected keys under [{TABLE}].")
    check_keys(TABLE, own, tuple(Deployment.model_fields))
    deployment = validate(Deployment, own, TABLE)
    if deployment.data == "nodes" and deployment.num_classes < 2:
        raise Misconfigured(
            f'flower.data = "nodes" needs the number of classes that all nodes together have; flower.num_classes is '
            f"{deployment.num_classes}. Set it to 2 or more."
        )
    config = complete_config(raw)
    augment = config.dataset_settings.augment
    if deployment.data == "nodes" and augment not in ("none", "crop_flip"):
        raise Misconfigured(
            f"dataset.augment = '{augment}' is a recipe for one data set, and nodes have data of their own. "
            f"Use dataset.augment = 'crop_flip' or 'none'."
        )
    return config, deployment
