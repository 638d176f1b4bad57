"""Numbers of a group as points to draw."""

from fedblade.charts import group_series
from fedblade.results import group_runs, read_runs


def test_a_series_covers_the_rounds_that_all_seeds_share(make_run, tmp_path):
    make_run(seed=1, accuracies=[10.0, None, 30.0, 40.0, 50.0], planned=5)
    make_run(seed=2, accuracies=[20.0, 25.0, 50.0, None], planned=5)
    make_run(seed=3, accuracies=[None, None], planned=5)

    (group,) = group_runs(read_runs([tmp_path / "runs"]))
    series = group_series(group, "rounds", "test_accuracy")

    assert series is not None
    assert (series.x, series.y) == ((1.0, 3.0), (15.0, 40.0))
    assert (series.low, series.high) == ((10.0, 30.0), (20.0, 50.0))
