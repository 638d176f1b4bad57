"""The numbers of a group as points: the mean over seeds with their range."""

from fedblade.charts import group_series
from fedblade.results import group_runs, read_runs


def test_series_cover_the_rounds_all_seeds_share(make_run, tmp_path):
    make_run(seed=1, accuracies=[10.0, None, 30.0, 40.0, 50.0], planned=5)
    make_run(seed=2, accuracies=[20.0, 25.0, 50.0, None], planned=5)
    make_run(seed=3, accuracies=[None, None], planned=5)

    (group,) = group_runs(read_runs([tmp_path / "runs"]))
    series = group_series(group, "rounds", "test_accuracy")

    assert series is not None
    assert series.x == (1, 3)
    assert (series.y, series.low, series.high) == ((15.0, 40.0), (10.0, 30.0), (20.0, 50.0))
