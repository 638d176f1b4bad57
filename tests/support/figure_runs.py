"""Run folders with every number a figure can show, written as runs write them."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MakeRun = Callable[..., Path]

ROUNDS, CLASSES, CLIENTS, DIM = 12, 6, 8, 20

SCALARS = (
    "erank_feature", "erank_feature_correlation", "erank_proj", "erank_proj_correlation", "nc1_feature_unit",
    "nc2_feature_fro", "nc_error", "spectrum_ratio", "prototype_consistency", "classifier_consistency",
    "angle_existing_local", "angle_missing_local", "angle_existing_global", "angle_missing_global",
    "class_mean_angle_existing", "class_mean_angle_missing", "alignment_observed", "alignment_unobserved",
    "alignment_erased", "alignment_gap_observed", "alignment_gap_unobserved", "alignment_gap_erased",
    "feature_distance_observed",
    "feature_distance_unobserved", "feature_angle_observed", "feature_angle_unobserved", "drift_norm", "update_cosine",
    "significant_values", "worst_class_accuracy", "worst_decile_accuracy", "ece", "zero_variance_share",
    "client_accuracy_mean", "drift_relative", "nc_error_centred", "nc1_feature_ratio", "nc1_feature_pinv",
    "nc1_proj_unit", "nc1_proj_ratio", "nc1_proj_pinv", "nc2_feature_normalised", "nc2_feature_equinorm",
    "nc2_feature_equiangle", "nc2_proj_fro", "nc2_proj_normalised", "nc2_proj_equinorm", "nc2_proj_equiangle",
)  # fmt: skip


def history(rng: random.Random, drop: tuple[str, ...]) -> list[dict[str, Any]]:
    """Courses that rise, each field at a height of its own."""
    heights = {name: 1 + 3 * rng.random() for name in SCALARS}
    pace, best, rows = 2 + 4 * rng.random(), 70 + 25 * rng.random(), []
    for number in range(1, ROUNDS + 1):
        risen = 1 - math.exp(-number / pace)
        row = {"round": number, "clients": [0, 3], "seconds": 0.25, "bytes_up": 400_000, "bytes_down": 600_000}
        row |= {"test_accuracy": best * risen + rng.uniform(-1, 1), "test_loss": 2.5 - 2.3 * risen}
        row |= {name: height * risen + rng.uniform(-0.05, 0.05) for name, height in heights.items()}
        rows.append({key: value for key, value in row.items() if key not in drop})
    return rows


def arrays(rng: random.Random, drop: tuple[str, ...]) -> dict[str, Any]:
    """Falling spectra, a symmetric matrix with ones on its diagonal, and answers that are mostly right."""
    fall = 0.2 + 0.3 * rng.random()
    cosines = [[1.0 if i == j else -0.2 + 0.01 * (i + j) for j in range(CLASSES)] for i in range(CLASSES)]
    answers = [[rng.randint(0, 9) + 30 * (i == j) for j in range(CLASSES)] for i in range(CLASSES)]
    sure = [None, None, *((k + 0.5) / 15 for k in range(2, 15))]
    made = {
        "spectrum": [math.exp(2 - fall * k) for k in range(DIM)],
        "local_spectrum": [math.exp(2 - 0.6 * fall * k) for k in range(DIM)],
        "class_cosines": cosines,
        "class_accuracy": [100 * row[i] / sum(row) for i, row in enumerate(answers)],
        "confusion": answers,
        "calibration": {
            "confidence": sure,
            "accuracy": [None if each is None else each * each for each in sure],
            "count": [0 if each is None else 7 for each in sure],
        },
    }
    return {key: value for key, value in made.items() if key not in drop}


def config(seed: int, sections: dict[str, dict[str, Any]]) -> str:
    """A configuration as TOML, with dotted keys for nested tables."""
    usual = {
        "dataset": {"name": "digits"},
        "partition": {"name": "dirichlet", "alpha": 0.1},
        "federation": {"num_clients": CLIENTS, "clients_per_round": 4, "rounds": ROUNDS},
        "model": {"name": "mlp"},
        "local": {"epochs": 3},
        "method": {"name": "fedavg"},
    }
    lines = [f"seed = {seed}"]
    for name, entries in usual.items():
        chosen = entries | sections.get(name, {})
        if name == "partition" and not chosen["name"].startswith("dirichlet"):
            chosen.pop("alpha", None)
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in chosen.items())]
    return "\n".join(lines) + "\n"


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A function that writes one finished run below `tmp_path/runs` and returns its folder."""

    def make(
        method: str = "fedavg", seed: int = 1, /, *, drop: tuple[str, ...] = (), **sections: dict[str, Any]
    ) -> Path:
        sections["method"] = {"name": method} | sections.get("method", {})
        text = config(seed, sections)
        rng = random.Random(text)
        run = tmp_path / "runs" / f"{len(list(tmp_path.glob('runs/*'))):03d}"
        run.mkdir(parents=True)
        rows, table = history(rng, drop), arrays(rng, drop)
        (run / "config.toml").write_text(text)
        (run / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        stored = [{"round": number, **table} for number in (ROUNDS // 2, ROUNDS)] if table else []
        (run / "diagnostics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in stored))
        counts = [[rng.choice((0, 0, 5, 20, 60)) for _ in range(CLASSES)] for _ in range(CLIENTS)]
        if "partition" not in drop:
            (run / "partition.json").write_text(json.dumps({"digest": f"d{seed}", "counts": counts}))
        own = [{"client": c, "accuracy": 60 + 40 * rng.random()} for c in range(CLIENTS)]
        if "clients" not in drop:
            (run / "clients.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
        accuracies = [row["test_accuracy"] for row in rows if "test_accuracy" in row]
        summary: dict[str, Any] = {
            "method": method, "seed": seed, "rounds": ROUNDS, "status": "finished", "accuracy_of": "global",
            "seconds": 3.0, "bytes_up": 400_000 * ROUNDS, "bytes_down": 600_000 * ROUNDS,
            "general_accuracy": 80 + 10 * rng.random(), "personal_accuracy": 90 + 10 * rng.random(),
            "personal_curve": [70 + 2.0 * i + rng.random() for i in range(9)],
        }  # fmt: skip
        if accuracies:
            summary |= {"final_accuracy": accuracies[-1], "last10_accuracy": sum(accuracies[-10:]) / 10}
        (run / "summary.json").write_text(json.dumps({k: v for k, v in summary.items() if k not in drop}))
        return run

    return make
