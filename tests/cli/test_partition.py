"""`fedblade partition`: splits as files, and the Dirichlet splits side by side."""

import json

import numpy as np

from fedblade.partitions import hardness
from fedblade.runs import load_config, split_clients


def test_partition_saves_a_split_that_a_run_can_use(cli, small, tmp_path):
    """Also with samples held out for tests, which the file keeps and the run holds out again."""
    held = ("--set", "test_split=holdout")
    assert cli("partition", *small, *held, "--save", "sub/split.json").done().last == "sub/split.json"
    cli("run", *small, *held, "--out", "dealt").done()
    cli(
        "run", *small, *held, "--set", "partition=file", "--set", "partition.path=sub/split.json", "--out", "read"
    ).done()
    dealt, read = (json.loads((tmp_path / run / "partition.json").read_text()) for run in ("dealt", "read"))
    assert {key: read[key] for key in ("digest", "counts", "hardness")} == {
        key: dealt[key] for key in ("digest", "counts", "hardness")
    }


def test_partition_compares_all_dirichlet_splits_in_eighty_columns(cli):
    answer = cli("partition", "--set", "alpha=0.05", "--compare").done()
    lines = answer.out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines if line.startswith("dirichlet")]
    assert [row[0] for row in rows] == ["dirichlet"] * 3 + ["dirichlet_groups"] + ["dirichlet_clients"] * 3
    assert {row[-1] for row in rows} <= {"mild", "moderate", "hard"}
    config, _ = load_config(None, {"alpha": 0.05})
    split = split_clients(config, dataset := config.dataset.make()).train
    found, sizes = hardness(split, 10), split.sizes()
    assert rows[0][1] == f"{sizes.min()}/{np.median(sizes):.0f}/{sizes.max()}"
    assert [rows[0][2], *rows[0][5:]] == [
        f"{found.effective_classes:.2f}",
        f"{found.effective_clients:.1f}",
        f"{found.missing_classes:.2f}",
        f"{found.cohort_distance:.2f}",
        found.level,
    ]
    assert f"{len(dataset.train.labels)} samples" in lines[0]


def test_partition_compares_what_is_possible_and_says_why_the_rest_is_not(cli):
    """Digits have 1348 samples, too few for ten on each of 203 clients, who cannot be put in groups of ten either."""
    out = cli("partition", "--set", "num_clients=203", "--set", "alpha=1", "--compare").done().out
    assert max(map(len, out.splitlines())) <= 80
    first, second, third, groups, clients, *_ = [f"dirichlet{row}" for row in out.split("\ndirichlet")[1:]]
    assert "min_size=10 for num_clients=203 needs 2030 samples" in " ".join(
        row[17:].strip() for row in first.splitlines()
    )
    assert "203" in groups
    assert all(row.splitlines()[0].split()[-1] in ("mild", "moderate", "hard") for row in (second, third, clients))
