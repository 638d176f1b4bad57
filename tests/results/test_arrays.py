"""Arrays over rounds: checked, averaged over seeds, thinned."""

import json

import numpy as np
import pytest

from fedblade.results import (
    StoredArray,
    array_length,
    complete_list,
    group_runs,
    number_list,
    read_runs,
    snapshots,
    square_matrix,
)
from fedblade.results._diagnostic_arrays import evenly


@pytest.fixture
def groups(make_run, tmp_path):
    """Groups of runs, each written with the arrays of its diagnostics."""

    def write(*runs):
        for method, seed, rows in runs:
            run = make_run(method, seed, accuracies=[50.0])
            (run / "diagnostics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return group_runs(read_runs([tmp_path / "runs"]))

    return write


def rows(name, values):
    return [{"round": at, name: value} for at, value in values.items()]


def test_seeds_are_averaged_at_the_rounds_they_share(groups):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    first = dict(zip((1, 2, 3), a.tolist(), strict=True))
    second = dict(zip((2, 3, 4), b.tolist(), strict=True))

    shown = snapshots(groups(("x", 1, rows("v", first)), ("x", 2, rows("v", second))), StoredArray("v", number_list))

    assert shown is not None
    assert shown.rounds == (2, 3)
    assert np.array(shown.values[0]) == pytest.approx((a[1:] + b[:2]) / 2)


def test_unknown_entries_leave_the_mean_to_the_others(groups):
    written = groups(("x", 1, rows("v", {1: [1.0, None, None]})), ("x", 2, rows("v", {1: [3.0, 5.0, None]})))

    shown = snapshots(written, StoredArray("v", number_list))

    assert shown is not None
    assert shown.last == ((2.0, 5.0, None),)


def test_a_group_shows_its_latest_array_and_none_before_its_first(groups):
    written = groups(("x", 1, rows("v", {1: [1.0], 4: [4.0]})), ("y", 1, rows("v", {2: [2.0], 3: [3.0]})))

    shown = snapshots(written, StoredArray("v", number_list))

    assert shown is not None
    assert shown.rounds == (1, 2, 3, 4)
    assert shown.values == (((1.0,), (1.0,), (1.0,), (4.0,)), (None, (2.0,), (3.0,), (3.0,)))
    asked = snapshots(written, StoredArray("v", number_list), rounds=(3,))
    assert asked is not None
    assert asked.values == (((1.0,),), ((3.0,),))


@pytest.mark.parametrize("broken", [None, 3, "x", [], {}, [None, None], ["a"], [float("nan")]])
def test_what_is_no_list_of_numbers_is_left_out(groups, broken):
    assert number_list(broken) is None
    assert snapshots(groups(("x", 1, [{"round": 1, "v": broken}])), StoredArray("v", number_list)) is None


@pytest.mark.parametrize("broken", [[[1.0, 2.0]], [[1.0], [2.0, 3.0]], [1.0], [[1.0], 2.0], [[]], None])
def test_what_is_no_square_is_left_out(groups, broken):
    assert snapshots(groups(("x", 1, [{"round": 1, "m": broken}])), StoredArray("m", square_matrix)) is None


def test_squares_are_read_row_after_row_and_seeds_of_other_sizes_do_not_mix(groups):
    one, two = [[1.0, 2.0], [3.0, 4.0]], [[1.0]]
    written = groups(("x", 1, rows("m", {1: one, 2: one})), ("x", 2, rows("m", {1: one, 2: two})))

    shown = snapshots(written, StoredArray("m", square_matrix))

    assert shown is not None
    assert (shown.rounds, shown.values) == ((1, 2), (((1.0, 2.0, 3.0, 4.0),) * 2,))
    assert array_length(written, StoredArray("m", square_matrix)) is None
    assert array_length(written[:1], StoredArray("other", number_list)) is None


def test_a_list_with_a_gap_is_not_complete_and_parts_are_found_inside(groups):
    written = groups(("x", 1, [{"round": 1, "v": [1.0, None], "bins": {"v": [3.0, None]}}]))

    assert snapshots(written, StoredArray("v", complete_list)) is None
    inside = snapshots(written, StoredArray("v", number_list, within="bins"))
    assert inside is not None
    assert inside.last == ((3.0, None),)
    assert array_length(written, StoredArray("v", number_list)) == 2


@pytest.mark.parametrize(("count", "most"), [(200, 20), (21, 20), (5, 20), (7, 2), (7, 1)])
def test_rounds_are_thinned_evenly_and_the_last_stays(count, most):
    values = list(range(1, count + 1))

    chosen = evenly(values, most)

    assert len(chosen) == min(count, most)
    assert chosen[-1] == count
    assert max(np.diff(chosen), default=1) - min(np.diff(chosen), default=1) <= 1
