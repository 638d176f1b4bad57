"""`growth`: how the cost of a piece of work grows with its size. A module has the rows about one piece of work."""

from benchmarks.benchmark import Benchmark, Measured, Options, Skipped
from benchmarks.workloads.growth import client_states, diagnostics, many_classes, page, personal_models, report, start
from benchmarks.workloads.growth.row import GrowthRow

ROWS: tuple[GrowthRow, ...] = (
    *diagnostics.ROWS, *many_classes.ROWS, *client_states.ROWS, *personal_models.ROWS, *report.ROWS, *page.ROWS,
    *start.ROWS,
)  # fmt: skip


def measure(options: Options) -> Measured:
    """Every row, measured or with the reason why it cannot be measured here."""
    for row in ROWS:
        try:
            yield row.case.label, row.measure(options)
        except Skipped as reason:
            yield row.case.label, str(reason)


BENCHMARKS = (
    Benchmark("growth", "what a few times more work costs, on the CPU", tuple(row.case for row in ROWS), measure),
)
