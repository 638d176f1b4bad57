"""Three hospitals have CSV files that may not leave them. Each error says what I need next, until the app is ready."""

import csv
import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

HOSPITALS = ("north", "south", "west")


@pytest.fixture
def folder(tmp_path):
    for k, name in enumerate(HOSPITALS):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("patient", "age", "ward", "outcome"))
            for i in range(30):
                age = 20 + 2 * i + k
                rows.writerow((f"p{k}-{i}", age if i % 9 else "", "ABC"[i % 3], "ill" if age > 50 else "well"))
    return tmp_path


def fedblade(folder, *words, status=0):
    """What a command prints, or its error if it was to fail."""
    command = [sys.executable, "-m", "fedblade", "flower", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else " ".join(done.stderr.split())


def test_hospitals_with_tables(folder):
    assert "Missing option '--client'" in fedblade(folder, "sums", "north.csv", status=2)
    first = ("sums", "north.csv", "--client", "0")
    for more, said in (
        ((), "has no label column 'label'. Name one of its columns: --label NAME."),
        (("--label", "outcome"), "column 'age', row 2 has no value (4 of 30 in this column)"),
        (("--label", "outcome", "--missing", "fill"), "Give the seed that draws them: --seed N"),
    ):
        assert said in fedblade(folder, *first, *more, status=2)
    read = ("--label", "outcome", "--missing", "fill", "--seed", "1")
    for k, name in enumerate(HOSPITALS):
        out = ("--client", str(k), *read, "--out", f"{name}.json")
        printed = fedblade(folder, "sums", f"{name}.csv", *out)
        assert "no text, because every row has another one" in printed
        assert f"p{k}-1" not in (folder / f"{name}.json").read_text()
    tables = ("--set", "dataset=files", "--set", "num_clients=3", "--set", "clients_per_round=3")
    fedblade(folder, "init", "app", *tables, "--set", "model=mlp")
    printed = fedblade(folder, "agree", "app", *(f"{name}.json" for name in HOSPITALS))
    assert "column 'patient' has another text in every row, so it is an identifier, and is left out" in printed
    assert "2 classes: ill, well" in printed
    assert "[flower.agreement]" in (folder / "app" / "fedblade.toml").read_text()


def test_the_first_mistake(folder):
    """I ask for another seed than that of the run."""
    fedblade(folder, "init", "app", "--set", "dataset=files", "--set", "num_clients=3", "--set", "clients_per_round=3")
    options = ("--label", "outcome", "--missing", "fill", "--seed", "7", "--client", "0", "--out", "north.json")
    fedblade(folder, "sums", "north.csv", *options)
    error = fedblade(folder, "agree", "app", "north.json", status=2)
    assert "seed 7 draws, and the seed of the app is 1. Make the file anew with --seed 1." in error
