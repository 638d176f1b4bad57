"""The configuration of an app: that of a run, and the settings of its deployment in the table `flower`."""

import contextlib
import math
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, InstanceOf

from fedblade.config.run_config import HELD_BY_NODES, RunConfig, complete_config
from fedblade.config.schema import Section
from fedblade.config.validation import validate
from fedblade.core.errors import Misconfigured
from fedblade.flower.agreement import KEY, Agreement
from fedblade.flower.app_folder import CONFIG, AppFolder, find_app

TABLE = "flower"
"""Table of an app's configuration with the settings of the deployment."""
ENGINE = "flower"
"""The name of the engine in summaries."""


class Deployment(Section):
    """The settings of a deployment: on which conditions clients take part.

    With `data` "shares" every node holds its clients' shares of the run's data set; this is for local federations. With
    "nodes" every node has its own data, in `num_classes` classes. `agreement` says how all nodes read tables and number
    names of classes. `test` is a file on the server: the global model is measured on its test samples, x_test and
    y_test, or on all its samples if it has no such part. Without it, nodes measure the global model on their own test
    samples.
    Personal models are always measured on the nodes. A run begins when `min_clients` have a node, by default (0) all of
    federation.num_clients, and fails if that takes longer than `wait_seconds`; the others may join between rounds, and
    count as missing until then. A round ends when all its clients have answered, or after `round_seconds` if a `quorum`
    of them has; otherwise the missing clients are asked again, `attempts` times in all. `order` "fixed" adds replies in
    the order of the clients' ids, so that the same replies give the same model to the last bit. A client's update,
    times its weight if that is above 1, may be at most `max_norm` times as long as the model; a model shorter than 1
    counts as 1.
    """

    data: Literal["shares", "nodes"] = "shares"
    num_classes: Annotated[int, Field(ge=0)] = 0
    test: str = ""
    min_clients: Annotated[int, Field(ge=0)] = 0
    wait_seconds: Annotated[float, Field(gt=0)] = 600.0
    round_seconds: Annotated[float, Field(gt=0)] = 600.0
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.5
    attempts: Annotated[int, Field(gt=0)] = 3
    order: Literal["fixed", "arrival"] = "fixed"
    max_norm: Annotated[float, Field(gt=0)] = 100.0
    agreement: Annotated[InstanceOf[Agreement] | None, Field(exclude=True)] = None


def read_app(folder: Path) -> tuple[RunConfig, Deployment]:
    """The checked configuration of the app in a folder."""
    app = find_app(folder)
    return check_config(app, parse_config(app, config_text(app)))


def config_text(app: AppFolder) -> str:
    """The text of the app's configuration file."""
    path = app.path / CONFIG
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Misconfigured(f"'{path}' is not valid TOML: {error}. Correct the file.") from error


def parse_config(app: AppFolder, text: str) -> dict[str, Any]:
    """The tables in a text of the app's configuration file, not checked yet."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"'{app.path / CONFIG}' is not valid TOML: {error}. Correct the file.") from error


def check_config(app: AppFolder, tables: dict[str, Any]) -> tuple[RunConfig, Deployment]:
    """The checked configuration of the app; tables that name the app's own parts import them from its folder."""
    with _importable(app.path):
        return split_tables(tables)


def split_tables(tables: dict[str, Any]) -> tuple[RunConfig, Deployment]:
    """The run and its deployment, from the tables of one file."""
    deployment = _deployment(tables.pop(TABLE, {}))
    if deployment.data == "nodes" and deployment.num_classes < 2:
        raise Misconfigured(
            f'flower.data = "nodes" needs the number of classes that all nodes together have; flower.num_classes is '
            f"{deployment.num_classes}. Set it to 2 or more."
        )
    if deployment.data == "nodes":
        # Nothing is divided, so a partition that the file names for a run on one machine does not count.
        tables = tables | {"partition": {"name": HELD_BY_NODES}}
    config = complete_config(tables)
    _check_min_clients(deployment, config.federation.num_clients)
    _check_agreement(deployment, config)
    augment = config.dataset_settings.augment
    if deployment.data == "nodes" and augment not in ("none", "crop_flip"):
        raise Misconfigured(
            f"dataset.augment = '{augment}' is made for one data set, and every node has its own data. "
            f"Use dataset.augment = 'crop_flip' or 'none'."
        )
    return config, deployment


def _deployment(table: Any) -> Deployment:
    """The checked settings of the deployment."""
    if not isinstance(table, dict):
        raise Misconfigured(f"{TABLE} = {table!r} is not a table; expected keys under [{TABLE}].")
    settings = {key: value for key, value in table.items() if key != KEY}
    agreement = Agreement.of(table[KEY]) if KEY in table else None
    return validate(Deployment, settings, TABLE).model_copy(update={"agreement": agreement})


def _check_agreement(deployment: Deployment, config: RunConfig) -> None:
    """Refuse an agreement that was made for another configuration."""
    agreement = deployment.agreement
    if agreement is None:
        return
    again = "Make the agreement anew: fedblade flower agree, with files of `fedblade flower sums`."
    if deployment.data != "nodes":
        raise Misconfigured(
            f"{TABLE}.{KEY} is for nodes with data of their own, and {TABLE}.data is '{deployment.data}'. Set "
            f'{TABLE}.data = "nodes", or remove the table [{TABLE}.{KEY}].'
        )
    if agreement.classes is not None and len(agreement.classes) != deployment.num_classes:
        raise Misconfigured(
            f"{TABLE}.{KEY} has {len(agreement.classes)} classes, and {TABLE}.num_classes is "
            f"{deployment.num_classes}; expected the same number. {again}"
        )
    if agreement.seed not in (None, config.split_seed):
        raise Misconfigured(
            f"{TABLE}.{KEY} leaves out the test samples that seed {agreement.seed} draws, and the seed of the run is "
            f"{config.split_seed}. {again}"
        )


def _check_min_clients(deployment: Deployment, num_clients: int) -> None:
    """Refuse a beginning with more clients than there are, or with so few that a round of all clients cannot end."""
    given, needed = deployment.min_clients, math.ceil(deployment.quorum * num_clients)
    if given and not needed <= given <= num_clients:
        raise Misconfigured(
            f"flower.min_clients = {given}; expected {needed} to {num_clients}, because a round of all "
            f"{num_clients} clients (federation.num_clients) needs the replies of {needed} (flower.quorum = "
            f"{deployment.quorum:g}). Change one of the three."
        )


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Python finds the modules of the app in a folder too; they hide no module of the installation."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
