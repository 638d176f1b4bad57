"""Protocols: how a history becomes one number, against values worked out by hand."""

import math

import pytest

from fedblade import protocols


def history(*values, first=1):
    """One row per value; None is a round that was not evaluated."""
    rows = [{"round": number, "seconds": 0.1} for number in range(first, first + len(values))]
    for row, value in zip(rows, values, strict=True):
        if value is not None:
            row |= {"test_accuracy": value, "test_loss": 1.0}
    return rows


RISING = history(*[float(10 * i) for i in range(1, 13)])  # 10, 20, …, 120


def test_the_last_ten_rounds_are_averaged():
    assert protocols.last_mean(RISING, 10) == 75.0
    assert protocols.headline(RISING, "last10") == 75.0


def test_the_last_five_rounds_are_averaged():
    assert protocols.headline(RISING, "last5") == 100.0


def test_fewer_rounds_than_asked_for_are_all_averaged():
    assert protocols.last_mean(history(10.0, 20.0, 60.0), 10) == 30.0


def test_rounds_without_evaluation_do_not_count_as_rounds():
    rows = history(10.0, None, 30.0, None, None, 80.0, None)
    assert protocols.accuracies(rows) == [(1, 10.0), (3, 30.0), (6, 80.0)]
    assert protocols.last_mean(rows, 2) == 55.0
    assert protocols.final(rows) == 80.0


def test_final_is_the_last_and_best_the_highest():
    rows = history(50.0, 90.0, 70.0)
    assert protocols.final(rows) == protocols.headline(rows, "final") == 70.0
    assert protocols.best(rows) == 90.0


def test_an_accuracy_stored_as_null_is_not_measured():
    rows = [*history(50.0, 90.0), {"round": 3, "test_accuracy": None}]
    assert protocols.final(rows) == 90.0
    assert protocols.best(rows) == 90.0


def test_an_accuracy_that_is_not_a_number_is_not_measured():
    """In memory a history holds NaN where the file says null; both must give the same headline."""
    rows = history(50.0, 90.0, math.nan)
    assert protocols.final(rows) == 90.0
    assert protocols.best(rows) == 90.0
    assert protocols.last_mean(rows, 10) == 70.0


@pytest.mark.parametrize("protocol", ["last10", "last5", "final", "domain"])
def test_nothing_measured_gives_nothing(protocol):
    assert protocols.headline([], protocol) is None
    assert protocols.headline(history(None, None), protocol) is None
    assert protocols.best([]) is None


@pytest.mark.parametrize(("threshold", "expected"), [(5.0, 1), (10.0, 1), (10.1, 2), (120.0, 12), (120.1, None)])
def test_rounds_to_is_the_first_round_that_reaches_the_threshold(threshold, expected):
    assert protocols.rounds_to(RISING, threshold) == expected


def test_rounds_to_counts_rounds_not_evaluations_and_ignores_later_losses():
    rows = history(None, 40.0, None, 95.0, 20.0, 99.0)
    assert protocols.rounds_to(rows, 90.0) == 4


def test_the_deviation_over_seeds_divides_by_one_less_and_one_seed_has_none():
    mean, spread = protocols.mean_std([80.0, 82.0, 87.0])
    assert mean == 83.0
    assert spread == pytest.approx(math.sqrt((9 + 1 + 16) / 2))
    assert protocols.mean_std([50.0]) == (50.0, None)
    assert protocols.pooled_last_std([history(1.0, 3.0), history(5.0)], 10) == 2.0
    assert protocols.pooled_last_std([history(1.0)], 10) is None


CALIBRATED = [
    *history(10.0, 50.0),
    {"round": 3, "test_accuracy": 30.0, "domain_accuracy": {"a": 20.0, "b": 40.0}, "calibrated_accuracy": 40.0}
    | {"calibrated_loss": 0.5, "calibrated_domain_accuracy": {"a": 10.0, "b": 60.0}, "exchange_seconds": 1.0},
]


@pytest.mark.parametrize("protocol", ["last10", "last5", "final", "pers_etf", "gapa", "ft"])
def test_a_calibrated_model_is_the_result_of_every_protocol(protocol):
    assert protocols.headline(CALIBRATED, protocol) == 40.0
    before = {"last10": 30.0, "last5": 30.0, "pers_etf": 30.0, "gapa": 50.0}.get(protocol, 30.0)
    rounds = [{key: value for key, value in row.items() if "calibrated" not in key} for row in CALIBRATED]
    assert protocols.headline(rounds, protocol) == before


def test_a_calibrated_model_has_domains_of_its_own():
    assert protocols.headline(CALIBRATED, "domain") == 35.0
    assert protocols.outcome(CALIBRATED) == [
        {"round": 3, "test_accuracy": 40.0, "test_loss": 0.5, "domain_accuracy": {"a": 10.0, "b": 60.0}}
    ]


def test_means_and_maxima_over_rounds_are_before_the_calibration():
    assert (protocols.last_mean(CALIBRATED, 10), protocols.best(CALIBRATED)) == (30.0, 50.0)
    assert protocols.accuracies(CALIBRATED) == [(1, 10.0), (2, 50.0), (3, 30.0)]


def test_without_calibration_the_rounds_are_the_result():
    assert [protocols.is_calibrated(rows) for rows in (CALIBRATED, CALIBRATED[:2], [])] == [True, False, False]
    assert protocols.outcome(RISING) is RISING


def test_domains_count_alike_whatever_their_size():
    rows = [
        {"round": 1, "test_accuracy": 10.0, "domain_accuracy": {"a": 0.0, "b": 100.0}},
        {"round": 2, "test_accuracy": 20.0, "domain_accuracy": {"a": 30.0, "b": 60.0, "c": 90.0}},
        {"round": 3},
    ]
    assert protocols.domain_mean(rows) == protocols.headline(rows, "domain") == 60.0
