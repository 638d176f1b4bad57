"""`tables`: seconds to read a table of text, up to the data set that a run trains on."""

import csv
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, at_most
from benchmarks.timing import median
from fedblade.core.registry import datasets

NUMBERS, CATEGORIES = 20, (3, 8, 20, 50)
CSV = Case(
    "100,000 rows of CSV",
    f"100,000 rows of {NUMBERS} numbers, {len(CATEGORIES)} texts of {min(CATEGORIES)} to {max(CATEGORIES)} categories "
    "and a label: read, checked, divided into training and test samples, standardised and encoded",
    at_most(5),
    "s",
)


def measure(options: Options, rows: int = 100_000, repetitions: int = 3) -> Measured:
    """Every repetition reads the whole file."""
    options.require_cpu()
    times, busy = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder) / "table.csv", rows)
        for _ in range(options.repetitions(repetitions)):
            begin, before = time.perf_counter(), time.process_time()
            datasets.get("files").make(path=str(file))
            times.append(time.perf_counter() - begin)
            busy.append(time.process_time() - before)
        megabytes = file.stat().st_size / 1e6
    yield (
        CSV.label,
        Result(
            median(times), {"s": median(times), "processor s": median(busy)}, times, f"a file of {megabytes:.0f} MB"
        ),
    )


def write(file: Path, rows: int) -> Path:
    """A file of random rows."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(rows, NUMBERS))
    texts = [rng.integers(0, count, rows) for count in CATEGORIES]
    labels = rng.integers(0, 10, rows)
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow([*(f"x{k}" for k in range(NUMBERS)), *(f"text{k}" for k in range(len(CATEGORIES))), "label"])
        for row in range(rows):
            cells = [f"kind {column[row]}" for column in texts]
            table.writerow([*(f"{number:.5g}" for number in numbers[row]), *cells, labels[row]])
    return file


BENCHMARKS = (Benchmark("tables", "seconds to read a table of text", (CSV,), measure),)
