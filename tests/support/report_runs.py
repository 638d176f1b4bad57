"""Realistic run directories, written as the contract describes them, with or without diagnostics."""

import functools
import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

MakeRun = Callable[..., Path]

CONFIG = """id = "quickstart"
seed = {seed}
engine = "stacked"
[dataset]
name = {dataset}
test_split = "{test_split}"
[partition]
name = "dirichlet"
alpha = {alpha}
[federation]
num_clients = 20
clients_per_round = 10
rounds = {planned}
[model]
name = "cnn"
[local]
epochs = 3
[method]
name = {method}
{knobs}
[checkpoint]
every = {checkpoint}
"""


def curve(method: str, seed: int, rounds: int) -> list[float]:
    """A plausible accuracy per round."""
    rng = random.Random(f"{method}/{seed}")
    return [round(90 * (1 - math.exp(-(r + 1) / 6)) + rng.uniform(-2, 2), 3) for r in range(rounds)]


def label_counts(seed: int, clients: int = 20, classes: int = 10) -> list[list[int]]:
    """A skewed n_kc table."""
    rng = random.Random(seed)
    return [[int(rng.paretovariate(0.9)) if rng.random() < 0.4 else 0 for _ in range(classes)] for _ in range(clients)]


def history_lines(accuracies: Sequence[float | None]) -> list[dict[str, Any]]:
    """One object per round; a round without accuracy was not evaluated."""
    lines: list[dict[str, Any]] = []
    for index, accuracy in enumerate(accuracies, 1):
        line: dict[str, Any] = {"round": index, "clients": [0, 3], "seconds": 0.25}
        if accuracy is not None:
            line |= {"test_accuracy": accuracy, "test_loss": 2.3 - accuracy / 50}
        lines.append(line)
    return lines


def write_run(
    below: Path,
    method: str = "fedavg",
    seed: int = 1,
    *,
    accuracies: Sequence[float | None] | None = None,
    rounds: int = 20,
    planned: int | None = None,
    status: str | None = "finished",
    knobs: str = "",
    dataset: str = "digits",
    alpha: float = 0.1,
    checkpoint: int = 1,
    folder: str | None = None,
    summary: dict[str, Any] | None = None,
    counts: list[list[int]] | None = None,
    test_split: str = "global",
) -> Path:
    """Write one run below a folder and return its own."""
    values = curve(method + knobs, seed, rounds) if accuracies is None else list(accuracies)
    run = below / (folder or f"{len(list(below.glob('*'))):03d}")
    run.mkdir(parents=True)
    quoted = {
        "test_split": test_split,
        "method": json.dumps(method),
        "dataset": json.dumps(dataset),
        "planned": planned or len(values),
    }
    (run / "config.toml").write_text(
        CONFIG.format(seed=seed, alpha=alpha, knobs=knobs, checkpoint=checkpoint, **quoted)
    )
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history_lines(values)))
    table = label_counts(seed) if counts is None else counts
    (run / "partition.json").write_text(json.dumps({"digest": f"d{seed}", "name": "dirichlet", "counts": table}))
    if status is not None:
        seen = [v for v in values if v is not None]
        stored: dict[str, Any] = {
            "method": method,
            "dataset": dataset,
            "partition": "dirichlet",
            "model": "cnn",
            "engine": "stacked",
            "seed": seed,
            "rounds": len(values),
            "final_accuracy": seen[-1] if seen else None,
            "last10_accuracy": sum(seen[-10:]) / len(seen[-10:]) if seen else None,
            "best_accuracy": max(seen) if seen else None,
            "seconds": 0.3 * len(values),
            "bytes_up": 1000 * len(values),
            "bytes_down": 2500 * len(values),
            "versions": {"fedblade": "0.1.0", "torch": "2.13.0"},
            "status": status,
            "accuracy_of": "global",
        }
        (run / "summary.json").write_text(json.dumps(stored | (summary or {})))
    return run


def diagnose(run: Path, *, quality: float = 0.5, classes: int = 10, dim: int = 32, every: int | None = 1) -> None:
    """Add every scalar of the diagnostics to a run, and every array in each `every`-th round, if in any.

    `quality` in [0, 1] tells methods apart.
    """
    rng = random.Random(f"{run.name}/{quality}")
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    for line in history:
        share = 1 - math.exp(-3 * line["round"] / len(history))
        courses = {key: start + (end * quality - start) * share for key, (start, end) in SCALARS.items()}
        line |= {key: value * rng.uniform(0.97, 1.03) for key, value in courses.items()}
        line |= {"bytes_up": 1000, "bytes_down": 2500}
    shown = [line["round"] for line in history if every and line["round"] % every == 0]
    rows = [_arrays(rng, round_, round_ / len(history), quality, classes, dim) for round_ in shown]
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history))
    (run / "diagnostics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


SCALARS = {
    "erank_feature": (2.0, 20.0),
    "erank_feature_correlation": (3.0, 25.0),
    "erank_proj": (2.0, 18.0),
    "erank_proj_correlation": (2.5, 19.0),
    "significant_values": (2.0, 30.0),
    "spectrum_ratio": (0.5, 0.2),
    "zero_variance_share": (0.2, 0.1),
    **{f"nc1_{of}_{kind}": (0.9, 0.3) for of in ("feature", "proj") for kind in ("pinv", "ratio", "unit")},
    **{f"nc2_{of}_fro": (9.0, 3.0) for of in ("feature", "proj")},
    **{
        f"nc2_{of}_{kind}": (1.2, 0.5) for of in ("feature", "proj") for kind in ("normalised", "equinorm", "equiangle")
    },
    "nc_error": (0.6, 0.2),
    "nc_error_centred": (0.5, 0.1),
    "ece": (0.5, 0.1),
    "worst_class_accuracy": (0.0, 80.0),
    "worst_decile_accuracy": (0.0, 90.0),
    "client_accuracy_mean": (10.0, 95.0),
    "drift_norm": (4.0, 1.5),
    "drift_relative": (0.2, 0.1),
    "update_cosine": (0.6, 0.2),
    "prototype_consistency": (0.3, 0.9),
    "classifier_consistency": (0.9, 0.95),
    **{f"alignment_{side}": (0.3, 0.9) for side in ("observed", "unobserved", "erased")},
    **{f"alignment_gap_{side}": (0.1, -0.2) for side in ("observed", "unobserved", "erased")},
    **{f"feature_distance_{side}": (3.0, 2.0) for side in ("observed", "unobserved")},
    **{f"feature_angle_{side}": (40.0, 20.0) for side in ("observed", "unobserved")},
    **{f"angle_{side}_{of}": (60.0, 95.0) for side in ("existing", "missing") for of in ("local", "global")},
    **{f"class_mean_angle_{side}": (60.0, 95.0) for side in ("existing", "missing")},
}


def _arrays(rng: random.Random, round_: int, share: float, quality: float, classes: int, dim: int) -> dict[str, Any]:
    spectrum = [3 * math.exp(-k * (0.8 - 0.5 * quality) * (1.5 - share)) for k in range(dim)]
    cosines = [[1.0] * classes for _ in range(classes)]
    for a in range(classes):
        for b in range(a):
            cosines[a][b] = cosines[b][a] = round(
                max(-1.0, min(1.0, rng.gauss(-1 / (classes - 1), 0.6 - 0.5 * share))), 6
            )
    right = [int(50 * share * (1 - 0.5 * c / classes)) for c in range(classes)]
    confusion = [[right[a] if a == b else rng.choice((0, 0, 1, 3)) for b in range(classes)] for a in range(classes)]
    sure = [None if at < 2 else (at + 0.5) / 15 for at in range(15)]
    return {
        "round": round_,
        "spectrum": [float(f"{value:.6g}") for value in spectrum],
        "local_spectrum": [float(f"{value * max(0.5, 1.6 - 0.02 * at):.6g}") for at, value in enumerate(spectrum)],
        "class_accuracy": [100 * confusion[c][c] / max(1, sum(confusion[c])) for c in range(classes)],
        "confusion": confusion,
        "class_cosines": cosines,
        "calibration": {
            "confidence": sure,
            "accuracy": [None if value is None else value ** (2 - quality) for value in sure],
            "count": [0 if value is None else 30 + at for at, value in enumerate(sure)],
        },
    }


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A function that writes one run below `tmp_path/runs` and returns its folder."""
    return functools.partial(write_run, tmp_path / "runs")
