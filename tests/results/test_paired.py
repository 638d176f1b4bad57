"""Paired differences: over the seeds that both have, with Student's interval."""

import pytest
from scipy import stats

from fedblade.results import compare, differences_to_best, group_runs, paired_difference, read_runs
from fedblade.results._paired import t_quantile


@pytest.fixture
def study(make_run, tmp_path):
    """The groups and rows of methods with an accuracy for each seed."""

    def build(accuracies: dict[str, dict[int, float]], **options):
        for method, by_seed in accuracies.items():
            for seed, accuracy in by_seed.items():
                make_run(method, seed, accuracies=[accuracy], **options)
        groups = group_runs(read_runs([tmp_path / "runs"]))
        return groups, compare(groups, 50.0)

    return build


def test_quantiles_are_those_of_students_distribution():
    assert [t_quantile(n) for n in range(1, 200)] == pytest.approx(
        [stats.t.ppf(0.975, n) for n in range(1, 200)], abs=1e-3
    )


def test_the_interval_is_that_of_a_paired_test_over_shared_seeds(study):
    _, (a, b) = study({"fedavg": {1: 60.0, 2: 70.0, 3: 62.0, 9: 0.0}, "fedprox": {1: 61.0, 2: 74.0, 3: 63.5, 7: 99.0}})

    found = paired_difference(b, a)

    assert found is not None
    expected = stats.ttest_rel([61.0, 74.0, 63.5], [60.0, 70.0, 62.0])
    interval = expected.confidence_interval(0.95)
    assert (found.label, found.against, found.seeds) == ("fedprox", "fedavg", 3)
    assert (found.mean, found.low, found.high) == pytest.approx((6.5 / 3, interval.low, interval.high), abs=1e-3)
    assert found.settled == (expected.pvalue < 0.05)


def test_a_difference_that_no_seed_turns_around_is_settled(study):
    _, (a, b) = study({"fedavg": {1: 60.0, 2: 70.0, 3: 62.0}, "fedprox": {1: 71.0, 2: 80.0, 3: 73.0}})

    assert paired_difference(b, a).settled
    assert paired_difference(a, b).settled


def test_one_shared_seed_gives_no_interval(study):
    groups, rows = study({"fedavg": {1: 60.0, 2: 70.0}, "fedprox": {2: 61.0, 3: 74.0}})

    assert paired_difference(*rows) is None
    assert differences_to_best(groups, rows) == [None, None]


def test_a_seed_that_occurs_twice_counts_once(study, make_run):
    make_run("fedavg", 1, accuracies=[64.0])
    _, (a, b) = study({"fedavg": {1: 60.0, 2: 70.0}, "fedprox": {1: 63.0, 2: 74.0}})

    found = paired_difference(b, a)

    assert (found.seeds, found.mean) == (2, pytest.approx(2.5))


def test_groups_are_compared_with_the_best_of_their_setting(study):
    groups, rows = study({"fedavg": {1: 60.0, 2: 70.0}, "fedetf": {1: 90.0, 2: 91.0}, "fedprox": {1: 61.0, 2: 74.0}})

    found = differences_to_best(groups, rows)

    against = {group.label: each and each.against for group, each in zip(groups, found, strict=True)}
    assert against == {"fedavg": "fedetf", "fedprox": "fedetf", "fedetf": None}
    assert all(each is None or each.mean < 0 for each in found)
