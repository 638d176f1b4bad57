"""Hospitals with tables: numbers, texts, missing cells, names as labels; alone in a folder, and apart on nodes."""

import csv
import tomllib

import numpy as np
import tomli_w

from fedblade.data.own_files import ReadSettings
from fedblade.flower._node import Node
from fedblade.flower.agreeing import agreement_of
from fedblade.flower.agreement import Agreement
from fedblade.flower.sums_file import read_sums_file, sums_of, write_sums_file
from support.node_runs import Far, config_of, config_of_clients
from support.three_wards import APART, CHANGES

FILL = ReadSettings("outcome", "fill", drop=("remark",))
FOLDER = {"dataset.label": "outcome", "dataset.missing": "fill", "dataset.drop": "remark"}
"""The same settings for data set `clients`."""
HEADER = ("id", "age", "town", "pressure", "site", "remark", "outcome")
OUTCOMES = ("dead", "ill", "well")
TOWNS = ("Lima", "Łódź", "Oslo")


def rows_of(ward, rows=30):
    """Rows of one hospital. The first lacks the outcome `dead`, the second the town Oslo."""
    rng = np.random.default_rng(ward)
    ages = rng.integers(20, 90, rows)
    towns = rng.choice(TOWNS[:2] if ward == 1 else TOWNS, rows)
    outcomes = [OUTCOMES[0 if ward and age > 80 else 1 if age > 50 else 2] for age in ages]
    return [
        (
            f"{ward}-{i}",
            str(age),
            "" if i == 3 else str(town),
            "" if i % 7 == 0 else f"{120 + 1.3 * i:.2f}",
            "A",
            "-",
            out,
        )
        for i, (age, town, out) in enumerate(zip(ages, towns, outcomes, strict=True))
    ]


def write_csv(path, rows, header=HEADER):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def agreed(folder, sources, settings=FILL, seed=1):
    """The agreement of the clients 0, 1, …, by files of sums and as a configuration file has it.

    Small runs have the seed 1.
    """
    files = {}
    for client, source in enumerate(sources):
        path = folder / f"sums-{client}.json"
        path.unlink(missing_ok=True)
        write_sums_file(path, sums_of(str(source), client, seed, settings))
        files[path] = read_sums_file(path)
    agreement, count, _ = agreement_of(files)
    stored = tomllib.loads(tomli_w.dumps(agreement.table()))
    assert Agreement.of(stored) == agreement
    return agreement, count


def apart(folder, sources, agreement, count, **given):
    """A run on a node for each source, all of which have the agreement."""
    config = given.pop("config", None) or config_of("fedavg", **CHANGES | {"num_clients": len(sources)})
    there = {50 + k: Node((k,), str(source), folder / f"n{k}", "cpu", agreement) for k, source in enumerate(sources)}
    terms = APART.model_copy(update={"num_classes": count, "agreement": agreement, **given})
    return Far(config, folder, terms, there=there)


def near_config(path, method="fedavg", **changes):
    """The run of one machine that has the folder with the files of all clients."""
    divided = {key: value for key, value in CHANGES.items() if key != "num_clients"}
    return config_of_clients(
        method, **{"dataset": "clients", "dataset.path": str(path), **FOLDER, **divided, **changes}
    )
