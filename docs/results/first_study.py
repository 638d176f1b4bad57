"""The CSV files and summaries of the first study; `tabulate.py CELLS INTO` calls `tabulate`.

`values.csv` has a line for each evaluated round of each run, `splits.csv` one for each split, and every run has its
summary under a short name.
"""

import csv
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedblade import hardness
from fedblade.results import PARTITION, SUMMARY, RunDirectory, read_object

SETTINGS = (
    "dataset", "alpha", "model", "method", "lambda_decorr", "gamma_pba", "balance", "form", "seed", "rounds",
)  # fmt: skip
SPLIT = ("dataset", "alpha", "seed")
"""The settings that a split follows from."""
MEASURES = (
    "test_accuracy", "erank_feature", "erank_feature_correlation", "erank_proj", "erank_proj_correlation",
    "nc1_feature_ratio", "nc1_proj_ratio", "nc2_feature_equiangle", "drift_norm", "update_cosine",
    "alignment_observed", "alignment_unobserved", "lambda_eff", "count_cholesky_failures",
)  # fmt: skip


def settings(run: Path) -> dict[str, Any]:
    """What tells a run from the others of the study."""
    config = RunDirectory(run).stored_config()
    if "alpha" not in config["partition"]:
        sys.exit(
            f"'{run}' is no run of this study; expected a Dirichlet split, with partition.alpha in its config.toml."
        )
    method = config["method"]
    decorr = method.get("decorr", {})
    named = {part: config[part]["name"] for part in ("dataset", "model", "method")}
    return named | {
        "alpha": config["partition"]["alpha"],
        "lambda_decorr": method.get("lambda_decorr", ""),
        "gamma_pba": method.get("gamma_pba", ""),
        "balance": decorr.get("balance", ""),
        "form": decorr.get("form", ""),
        "seed": config["seed"],
        "rounds": config["federation"]["rounds"],
    }


def short_name(own: dict[str, Any]) -> str:
    """A run by its settings: data and network, method, where this differs from the paper's, rounds and seed."""
    study = "small" if own["model"] == "small_cnn" else own["dataset"].partition("_")[0]
    if own["alpha"] != 0.05:
        study += f"-alpha-{own['alpha']:g}"
    parts = [study, own["method"].replace("_", "-")]
    if own["method"] == "fedblade":
        if own["balance"] != "none":
            parts.append(f"balance-{own['balance']:g}")
        elif own["lambda_decorr"] != 0.005:
            parts.append(f"weight-{own['lambda_decorr']:g}")
        parts += [word for word, so in (("no-pba", own["gamma_pba"] == 0), ("primal", own["form"] == "primal")) if so]
    return "-".join([*parts, f"r{own['rounds']}", f"seed{own['seed']}"])


def values(run: Path) -> list[dict[str, Any]]:
    """The evaluated rounds of a run."""
    own = settings(run)
    found = []
    for row in RunDirectory(run).history():
        if "test_accuracy" in row:
            measured = {name: f"{row[name]:.5g}" for name in MEASURES if name in row}
            found.append({"run": short_name(own)} | own | {"round": row["round"]} | measured)
    return found


def split(run: Path) -> dict[str, Any]:
    """How the training samples are spread; `largest_class` and `effective_classes` are those of `fedblade.hardness`."""
    record = read_object(run / PARTITION)
    counts = np.array(record["counts"])
    sizes, own = counts.sum(1), settings(run)
    measured = hardness.measure(counts, len(counts))
    return {name: own[name] for name in SPLIT} | {
        "draws": record["draws"],
        "smallest": int(sizes.min()),
        "median": float(np.median(sizes)),
        "largest": int(sizes.max()),
        "classes": float(np.median((counts > 0).sum(1))),
        "largest_class": f"{measured.largest_share:.3f}",
        "effective_classes": f"{measured.effective_classes:.2f}",
    }


def write(path: Path, rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    """Save rows as CSV; what a row lacks stays empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, names, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def tabulate(cells: Path, into: Path) -> None:
    """Read all finished runs below `cells` and write the tables and summaries."""
    runs = sorted(path.parent for path in cells.glob(f"*/{SUMMARY}"))
    if not runs:
        sys.exit(f"'{cells}' holds no finished run; expected folders with a summary.json, as in DIR/cells.")
    names = [short_name(settings(run)) for run in runs]
    if twice := sorted({each for each in names if names.count(each) > 1}):
        sys.exit(f"'{cells}' holds several runs that would be called '{twice[0]}'; expected one of each.")
    for run, name in zip(runs, names, strict=True):
        shutil.copyfile(run / SUMMARY, into / f"{name}.json")
    write(into / "values.csv", [row for run in runs for row in values(run)], ("run", *SETTINGS, "round", *MEASURES))
    splits = {tuple(row[name] for name in SPLIT): row for row in map(split, runs)}
    write(into / "splits.csv", list(splits.values()), tuple(split(runs[0])))
