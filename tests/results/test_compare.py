"""Grouping, means over seeds, ranks, rounds to a level, curves."""

import math

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.report import build_report
from fedblade.results import (
    comparison_rows,
    group_runs,
    last_rounds,
    last_rounds_heading,
    over_last_rounds,
    read_runs,
    suggest_threshold,
)


def test_means_and_deviations_match_numpy(make_run, tmp_path):
    rng = np.random.default_rng(0)
    values = {seed: rng.uniform(20, 95, size=25) for seed in (3, 1, 2)}
    for seed, accuracies in values.items():
        make_run("fedblade", seed, accuracies=accuracies.tolist())

    (row,) = comparison_rows([tmp_path / "runs"], threshold=80.0)

    ordered = [values[seed] for seed in (1, 2, 3)]
    last10 = [a[-10:].mean() for a in ordered]
    final = [a[-1] for a in ordered]
    assert (row.label, row.runs, row.finished, row.seeds) == ("fedblade", 3, 3, (1, 2, 3))
    assert row.last10_mean == pytest.approx(np.mean(last10))
    assert row.last10_std == pytest.approx(np.std(last10, ddof=1))
    assert row.final_mean == pytest.approx(np.mean(final))
    assert row.final_std == pytest.approx(np.std(final, ddof=1))
    assert row.rounds_to == tuple(int(np.argmax(a >= 80)) + 1 for a in ordered)
    assert row.rounds_to_mean == pytest.approx(np.mean(row.rounds_to))
    assert row.seconds_per_round == pytest.approx(0.25)
    assert (row.bytes_up_per_round, row.bytes_down_per_round) == (1000, 2500)


def test_rounds_to_counts_from_one_and_includes_equality(make_run):
    (row,) = comparison_rows([make_run(accuracies=[89.9, None, 90.0, 95.0])], threshold=90.0)

    assert row.rounds_to == (3,)
    assert row.rounds_to_text == "3"


def test_a_seed_that_never_arrives_shows_as_rounds_plus(make_run, tmp_path):
    make_run(seed=1, accuracies=[50.0, 91.0])
    make_run(seed=2, accuracies=[50.0, 60.0])

    (row,) = comparison_rows([tmp_path / "runs"], threshold=90.0)

    assert row.rounds_to == (2, None)
    assert row.rounds_to_mean is None
    assert row.rounds_to_text == "2+"
    assert row.rounds_to_seeds_text == ("2", "2+")


def test_how_a_run_was_shared_out_makes_no_group_of_its_own(make_run, tmp_path):
    make_run("fedprox", 1, knobs="mu = 0.01")
    make_run("fedprox", 2, knobs='mu = 0.01\n[distributed]\norder = "any"\nstore = "shared"')

    (row,) = comparison_rows([tmp_path / "runs"])

    assert (row.label, row.seeds) == ("fedprox", (1, 2))


def test_same_method_with_different_settings_is_labelled_by_what_differs(make_run, tmp_path):
    make_run("fedprox", 1, knobs="mu = 0.01")
    make_run("fedprox", 2, knobs="mu = 0.01", checkpoint=5)
    make_run("fedprox", 1, knobs="mu = 0.1")
    make_run("fedavg", 1)

    rows = comparison_rows([tmp_path / "runs"])

    assert [(row.label, row.runs) for row in rows] == [
        ("fedavg", 1),
        ("fedprox (mu=0.01)", 2),
        ("fedprox (mu=0.1)", 1),
    ]


def test_labels_name_sections_and_full_paths_where_needed(make_run, tmp_path):
    make_run("fedavg", dataset="digits", knobs="epochs = 1")
    make_run("fedavg", dataset="svhn", knobs="epochs = 2")

    labels = [row.label for row in comparison_rows([tmp_path / "runs"])]

    assert labels == [
        "fedavg (dataset=svhn, method.epochs=2)",
        "fedavg (dataset=digits, method.epochs=1)",
    ]


def test_labels_leave_out_knobs_of_a_part_of_another_name(make_run, tmp_path):
    """Unless they tell two parts of the same name apart."""
    parts = {"dirichlet": ["cap = true\nmin_size = 10"], "dirichlet_clients": ['deal = "clients"', 'deal = "samples"']}
    labels = []
    for name, knobs in ((name, knobs) for name, several in parts.items() for knobs in several):
        config = make_run("fedavg") / "config.toml"
        text = config.read_text().replace('name = "dirichlet"', f'name = "{name}"\n{knobs}')
        config.write_text(text)
        labels.append({row.label for row in comparison_rows([tmp_path / "runs"])})

    assert labels[1] == {"fedavg (partition=dirichlet)", "fedavg (partition=dirichlet_clients)"}
    assert labels[2] == {
        "fedavg (partition=dirichlet)",
        "fedavg (partition=dirichlet_clients, deal=clients)",
        "fedavg (partition=dirichlet_clients, deal=samples)",
    }


def test_labels_leave_out_settings_that_older_runs_lack(make_run, tmp_path):
    for knobs in ("a = 1", "a = 2\nadded_later = 3"):
        make_run("x", knobs=knobs)

    assert [row.label for row in comparison_rows([tmp_path / "runs"])] == ["x (a=1)", "x (a=2)"]


def test_a_setting_that_one_run_lacks_is_told_where_nothing_else_differs(make_run, tmp_path):
    for knobs in ("a = 1", "a = 1\nadded_later = 3"):
        make_run("x", knobs=knobs)

    labels = {row.label for row in comparison_rows([tmp_path / "runs"])}
    assert labels == {"x (added_later=unset)", "x (added_later=3)"}


def test_labels_stay_distinct_when_the_first_keys_agree(make_run, tmp_path):
    for knobs in ("a = 1\nb = 1\nc = 1\nd = 1", "a = 2\nb = 2\nc = 2\nd = 1", "a = 1\nb = 1\nc = 1\nd = 2"):
        make_run("x", knobs=knobs)

    labels = [row.label for row in comparison_rows([tmp_path / "runs"])]

    assert labels == ["x (a=1, d=1)", "x (a=1, d=2)", "x (a=2, d=1)"], "b and c tell no more apart"


def test_long_values_are_cut_in_labels_where_the_rest_tells_the_groups_apart(make_run, tmp_path):
    names = [f"metric_{number}" for number in range(9)]
    for metrics in (names, names[:1], ["other", *names]):
        make_run("x", knobs=f"a = 1\n[evaluation]\nmetrics = {metrics}")
    cut = [row.label for row in comparison_rows([tmp_path / "runs"])]
    assert sorted(cut) == [
        "x (metrics=[metric_0, … 8 more])",
        "x (metrics=[metric_0])",
        "x (metrics=[other, … 9 more])",
    ]

    make_run("x", knobs=f"a = 1\n[evaluation]\nmetrics = {[*names[:-1], 'last']}")
    labels = [row.label for row in comparison_rows([tmp_path / "runs"])]
    assert len(set(labels)) == 4
    assert any(label.endswith("metric_7, last])") for label in labels)


def test_accuracies_on_validation_samples_are_ranked_among_themselves(make_run, tmp_path):
    for accuracy, samples in ((90.0, "validation"), (80.0, "validation"), (70.0, "test")):
        make_run("x", accuracies=[accuracy], knobs=f"a = {accuracy}\n[evaluation]\non = '{samples}'")

    rows = {row.ranked_mean: row for row in comparison_rows([tmp_path / "runs"])}

    assert {mean: row.rank for mean, row in rows.items()} == {90.0: 1, 80.0: 2, 70.0: None}
    assert {mean: row.on_validation for mean, row in rows.items()} == {90.0: True, 80.0: True, 70.0: False}


def test_unfinished_runs_do_not_enter_the_mean_of_finished_ones(make_run, tmp_path):
    make_run(seed=1, accuracies=[80.0])
    make_run(seed=2, accuracies=[90.0])
    make_run(seed=3, accuracies=[10.0], status="failed")
    make_run(seed=4, accuracies=[20.0], status=None)

    (row,) = comparison_rows([tmp_path / "runs"])

    assert (row.runs, row.finished, row.seeds) == (4, 2, (1, 2))
    assert row.final_mean == 85.0


def test_while_no_run_is_finished_the_values_so_far_are_shown(make_run, tmp_path):
    make_run(seed=1, accuracies=[40.0], status=None)
    make_run(seed=2, accuracies=[60.0], status="interrupted")

    (row,) = comparison_rows([tmp_path / "runs"])

    assert (row.finished, row.final_mean, row.final_rank) == (0, 50.0, None)


def test_ranks_follow_the_means_within_one_setting(make_run, tmp_path):
    for method, accuracy in (("a", 70.0), ("b", 90.0), ("c", 80.0)):
        make_run(method, accuracies=[accuracy])
    make_run("d", accuracies=[99.0], status="failed")
    make_run("e", accuracies=[95.0], dataset="svhn")

    ranks = {row.method: (row.rank, row.final_rank) for row in comparison_rows([tmp_path / "runs"])}

    assert ranks == {"a": (3, 3), "b": (1, 1), "c": (2, 2), "d": (None, None), "e": (None, None)}


CALIBRATED = {"calibrated": True, "final_accuracy": 75.0, "accuracy": 75.0}


def test_a_calibrated_model_is_ranked_by_itself_and_not_by_its_rounds(make_run, tmp_path):
    for method, accuracy in (("a", 70.0), ("b", 80.0), ("c", 72.0)):
        make_run(method, accuracies=[accuracy] * 3, summary=CALIBRATED if method == "a" else None)

    rows = {row.method: row for row in comparison_rows([tmp_path / "runs"])}

    assert {name: (row.rank, row.calibrated) for name, row in rows.items()} == {
        "a": (2, True),
        "b": (1, False),
        "c": (3, False),
    }
    assert (rows["a"].ranked_mean, rows["a"].last10_mean, rows["a"].final_mean) == (75.0, 70.0, 75.0)
    assert (rows["b"].ranked_mean, rows["b"].last10_mean) == (80.0, 80.0)


def test_a_calibrated_row_has_the_deviation_of_its_calibrated_models(make_run, tmp_path):
    for seed, value in ((1, 70.0), (2, 80.0)):
        make_run("a", seed, accuracies=[50.0, 60.0], summary=CALIBRATED | {"final_accuracy": value})

    (row,) = comparison_rows([tmp_path / "runs"])

    assert (row.ranked_mean, row.ranked_std, row.last10_std) == (75.0, 50.0**0.5, 0.0)


def test_a_run_that_did_not_come_to_its_calibration_shows_its_rounds(make_run):
    (row,) = comparison_rows([make_run(accuracies=[10.0, 30.0], status="interrupted", summary=CALIBRATED)])

    assert (row.calibrated, row.ranked_mean, row.final_mean) == (False, 20.0, 30.0)


def test_no_evaluated_round_gives_none_and_not_an_error(make_run):
    (row,) = comparison_rows([make_run(accuracies=[None, None, None])])

    assert (row.last10_mean, row.last10_std, row.final_mean, row.final_std) == (None, None, None, None)
    assert row.rounds_to_text == "3+"


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [([96.0, 91.0, 89.9], 90.0), ([96.0, 91.0, 89.9, 88.0], 85.0), ([95.0], 95.0), ([3.0], 5.0), ([None], 90.0)],
)
def test_the_suggested_level_is_reached_by_half_of_the_runs(make_run, tmp_path, peaks, expected):
    for seed, peak in enumerate(peaks):
        make_run(seed=seed, accuracies=[peak])

    assert suggest_threshold(group_runs(read_runs([tmp_path / "runs"]))) == expected


def test_without_a_threshold_the_suggested_one_counts(make_run, tmp_path):
    make_run(accuracies=[40.0, 71.0, 74.0])

    (row,) = comparison_rows([tmp_path / "runs"])

    assert (row.threshold, row.rounds_to) == (70.0, (2,))


def test_groups_have_one_order_whatever_order_their_runs_come_in(make_run):
    """Methods as papers list them and unknown ones last by name, numbers by their size."""
    runs = [
        make_run("mine"),
        make_run("fedblade"),
        make_run("fedavg+feddecorr"),
        make_run("fedavg"),
        make_run("fedetf"),
    ]
    runs += [make_run("fedprox", knobs=f"mu = {mu}") for mu in (10, 9, 0.1)]
    orders = {tuple(row.label for row in comparison_rows(given)) for given in (runs, runs[::-1], sorted(runs))}

    proxes = ("fedprox (mu=0.1)", "fedprox (mu=9)", "fedprox (mu=10)")
    assert orders == {("fedavg", "fedavg+feddecorr", *proxes, "fedetf", "fedblade", "mine")}


@pytest.mark.parametrize("threshold", [math.nan, math.inf, 900.0, 100.1, 0.0, -5.0])
def test_a_threshold_that_no_run_could_reach_is_refused(make_run, tmp_path, threshold):
    run = make_run()
    with pytest.raises(Misconfigured, match="expected an accuracy in percent, above 0 and at most 100"):
        comparison_rows([run], threshold)
    with pytest.raises(Misconfigured, match="expected an accuracy in percent"):
        build_report([run], tmp_path / "page.html", threshold=threshold)
    assert not (tmp_path / "page.html").exists()
    assert comparison_rows([run], 100.0)[0].threshold == 100.0


@pytest.mark.parametrize(
    ("counts", "said", "heading"),
    [
        ([(10, 10), (60, 60)], "last 10 rounds", "last 10"),
        ([(12, 60)], "last 10 evaluated rounds", "last 10"),
        ([(8, 8), (8, 8)], "all 8 rounds", "all 8"),
        ([(3, 12)], "all 3 evaluated rounds", "all 3"),
        ([(1, 1)], "only round", "only"),
        ([(8, 8), (20, 20)], "last 10 rounds at most", "last ≤10"),
        ([(0, 0), (8, 8)], "all 8 rounds", "all 8"),
        ([(0, 0)], "last 10 rounds", "last 10"),
    ],
)
def test_the_rounds_of_the_mean_are_named_for_what_they_are(counts, said, heading):
    assert last_rounds(counts) == said
    assert last_rounds_heading(counts) == heading
    assert over_last_rounds(counts) == (said if said.startswith("all") else f"the {said}")
