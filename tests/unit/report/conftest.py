"""Realistic run directories, written as the contract describes them."""

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


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A function that writes one run below `tmp_path/runs` and returns its folder."""

    def make(
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
    ) -> Path:
        values = curve(method + knobs, seed, rounds) if accuracies is None else list(accuracies)
        run = tmp_path / "runs" / (folder or f"{len(list(tmp_path.glob('runs/*'))):03d}")
        run.mkdir(parents=True)
        quoted = {"method": json.dumps(method), "dataset": json.dumps(dataset), "planned": planned or len(values)}
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

    return make
