"""Panels hold the runs' numbers, under the names and beside the settings that tell them apart."""

import json
import math
from pathlib import Path
from statistics import fmean

import pytest

from fedblade.charts import LinePanel, MatrixPanel, Panel, section_charts
from fedblade.core.errors import Misconfigured
from fedblade.figures._panels import build_panels
from fedblade.figures._specs import Part, general_figures, paper_figure
from fedblade.results import group_runs, read_runs

DRIFT = ("drift_norm", "drift_relative", "update_cosine")


def general(name: str) -> Part:
    return next(part for part in general_figures() if part.name == name)


def panels(root: Path, part: Part, *, strict: bool = False) -> list[Panel]:
    return build_panels(part, group_runs(read_runs([root / "runs"])), strict=strict)


def history(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


def arrays(run: Path) -> dict[str, list[float]]:
    return json.loads((run / "diagnostics.jsonl").read_text().splitlines()[-1])


def by_name(panel: Panel) -> dict[tuple[str, str], tuple[float, ...]]:
    assert isinstance(panel, LinePanel)
    return {(panel.names[line.index], line.part): line.series.y for line in panel.lines}


def test_a_curve_is_the_mean_over_seeds_with_their_range(make_run, tmp_path):
    seeds = [history(make_run("fedavg", seed)) for seed in (1, 2, 3)]
    [panel] = panels(tmp_path, general("accuracy"))
    [line] = panel.lines
    columns = list(zip(*([row["test_accuracy"] for row in rows] for rows in seeds), strict=True))
    assert line.series.x == tuple(float(n) for n in range(1, 13))
    assert line.series.y == pytest.approx([fmean(column) for column in columns])
    assert line.series.low == pytest.approx([min(column) for column in columns])
    assert line.series.high == pytest.approx([max(column) for column in columns])
    assert (panel.x.label, panel.y.label) == ("round", "test accuracy (%)")


def test_a_spectrum_is_the_natural_logarithm_of_the_last_round_and_a_hundred_values_long(make_run, tmp_path):
    run = make_run()
    values = [math.exp(-0.1 * k) for k in range(150)]
    lines = [{"round": 3, "spectrum": [9.0, 9.0]}, {"round": 6, "spectrum": [*values[:40], None, 0.0, *values[42:]]}]
    (run / "diagnostics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    [panel] = panels(tmp_path, general("spectrum"))
    series = panel.lines[0].series
    assert series.x == tuple(float(k) for k in range(1, 101) if k != 41)
    expected = [math.log(1e-12) if k == 41 else -0.1 * k for k in range(100) if k != 40]
    assert series.y == pytest.approx(expected)


def test_local_and_global_spectra_share_a_panel(make_run, tmp_path):
    run = make_run()
    [panel] = panels(tmp_path, general("local-global-spectrum"))
    found = by_name(panel)
    assert list(found) == [("fedavg", "global"), ("fedavg", "local")]
    assert found["fedavg", "local"] == pytest.approx([math.log(v) for v in arrays(run)["local_spectrum"]])


def test_traffic_adds_up_over_rounds_that_were_not_evaluated_too(make_run, tmp_path):
    run = make_run()
    rows = history(run)
    for row in rows[1::2]:
        del row["test_accuracy"]
    (run / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [panel] = panels(tmp_path, general("communication"))
    assert panel.lines[0].series.x == pytest.approx([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])


def test_time_adds_up_over_rounds_as_far_as_every_round_says(make_run, tmp_path):
    run = make_run()
    rows = history(run)
    del rows[1]["test_accuracy"], rows[4]["seconds"]
    (run / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [panel] = panels(tmp_path, general("training-time"))
    assert panel.x.label == "training time (s)"
    assert panel.lines[0].series.x == pytest.approx([0.25, 0.75, 1.0])
    assert panel.lines[0].series.y == tuple(rows[at]["test_accuracy"] for at in (0, 2, 3))


def test_classes_are_sorted_by_their_mean_over_seeds_and_the_last_round_counts(make_run, tmp_path):
    for seed, values in ((1, [90.0, None, 30.0]), (2, [50.0, None, 80.0])):
        rows = [{"round": 3, "class_accuracy": [0.0, 0.0, 0.0]}, {"round": 6, "class_accuracy": values}]
        (make_run("fedavg", seed) / "diagnostics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [panel] = panels(tmp_path, general("class-accuracy"))
    assert panel.lines[0].series.x == (1.0, 2.0)
    assert panel.lines[0].series.y == (55.0, 70.0)


def test_reliability_is_the_share_of_right_answers_by_confidence_of_all_seeds_together(make_run, tmp_path):
    one = {"confidence": [None, 0.4, 0.9], "accuracy": [None, 0.25, 1.0], "count": [0, 4, 2]}
    two = {"confidence": [None, 0.5, None], "accuracy": [None, 0.5, None], "count": [0, 12, 0]}
    for seed, stored in enumerate((one, two)):
        row = {"round": 6, "calibration": stored}
        (make_run("fedavg", seed) / "diagnostics.jsonl").write_text(json.dumps(row) + "\n")
    [panel] = panels(tmp_path, general("reliability"))
    assert panel.lines[0].series.x == pytest.approx((47.5, 90.0))
    assert panel.lines[0].series.y == pytest.approx((43.75, 100.0))
    assert panel.diagonal


def test_confusion_is_in_percent_of_the_true_class_and_a_mean_over_seeds(make_run, tmp_path):
    for seed, table in ((1, [[3, 1], [0, 0]]), (2, [[1, 3], [0, 0]])):
        row = {"round": 6, "confusion": table}
        (make_run("fedavg", seed) / "diagnostics.jsonl").write_text(json.dumps(row) + "\n")
    [panel] = panels(tmp_path, general("confusion"))
    assert panel.values == ((50.0, 50.0), (None, None))
    assert (panel.title, panel.x.label, panel.y.label) == ("", "answer", "true class")


def test_pooled_confusion_says_how_many_classes_a_row_stands_for(make_run, tmp_path):
    table = {"classes": 301, "block": 200, "values": [[3, 1], [0, 0]]}
    row = {"round": 6, "confusion_pooled": table}
    (make_run() / "diagnostics.jsonl").write_text(json.dumps(row) + "\n")
    [panel] = panels(tmp_path, general("confusion"))
    assert panel.values == ((75.0, 25.0), (None, None))
    assert (panel.x.label, panel.y.label) == ("answer, blocks of 200", "true class, blocks of 200")


def test_clients_that_were_not_measured_are_estimated_by_their_labels(make_run, tmp_path):
    run = make_run(drop=("clients",))
    (run / "diagnostics.jsonl").write_text(json.dumps({"round": 6, "class_accuracy": [100.0, 40.0, None]}) + "\n")
    counts = [[3, 1, 0], [0, 5, 0], [0, 0, 9], [2, 0, 2]]
    (run / "partition.json").write_text(json.dumps({"digest": "d", "counts": counts}))
    [panel] = panels(tmp_path, general("client-accuracy-estimated"))
    assert panel.lines[0].series.y == (40.0, 85.0, 100.0)
    assert panels(tmp_path, general("client-accuracy")) == []


def test_panels_of_one_kind_of_number_share_their_scale_within_a_data_set(make_run, tmp_path):
    for dataset in ("cifar10", "cifar100"):
        for alpha in (0.05, 0.5):
            make_run(dataset={"name": dataset}, partition={"alpha": alpha})
    one, two, three, four = (panel.shared for panel in panels(tmp_path, paper_figure("fd-f4")[0]))
    assert one == two != three == four
    heads = [panel.shared for panel in panels(tmp_path, paper_figure("fg-f5")[0])]
    assert len(heads) == 8
    assert len(set(heads)) == 2
    first, second, *_ = panels(tmp_path, paper_figure("fe-f5")[0])
    assert first.shared != second.shared


def test_clients_are_sorted_from_the_worst_served_to_the_best(make_run, tmp_path):
    run = make_run()
    rows = [{"client": c, "accuracy": a} for c, a in enumerate((90.0, 50.0, None, 70.0))]
    (run / "clients.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [panel] = panels(tmp_path, general("client-accuracy"))
    assert panel.lines[0].series.y == (50.0, 70.0, 90.0)
    assert panel.lines[0].series.x == pytest.approx((100 / 3, 200 / 3, 100))


def test_lines_are_methods_in_the_papers_order_and_panels_are_settings(make_run, tmp_path):
    for dataset in ("tiny_imagenet", "cifar10"):
        for alpha in (0.5, 0.05):
            for method in ("fedblade", "fedavg+feddecorr", "fedavg", "mine"):
                make_run(method, dataset={"name": dataset}, partition={"alpha": alpha})
    found = panels(tmp_path, paper_figure("fb-f3")[0])
    titles = ["CIFAR-10, α = 0.05", "CIFAR-10, α = 0.5", "Tiny-ImageNet, α = 0.05", "Tiny-ImageNet, α = 0.5"]
    assert [panel.title for panel in found] == titles
    for panel in found:
        assert [panel.names[line.index] for line in panel.lines] == ["FedAvg", "FedAvg + FedDecorr", "FedBlade", "mine"]


def test_lines_are_splits_where_the_figure_says_so_or_only_splits_differ(make_run, tmp_path):
    for partition in ({"name": "iid"}, {"alpha": 0.5}, {"alpha": 0.05}):
        make_run(partition=partition)
    for part in (paper_figure("fd-f2")[0], general("accuracy")):
        [panel] = panels(tmp_path, part)
        assert [panel.names[line.index] for line in panel.lines] == ["α = 0.05", "α = 0.5", "IID"]


def test_settings_that_follow_from_others_are_not_repeated(make_run, tmp_path):
    for dataset, model in (("cifar10", "vgg11"), ("cifar100", "mobilenet_v1")):
        make_run(dataset={"name": dataset}, model={"name": model}, local={"epochs": len(dataset)})
        make_run("fedrep", dataset={"name": dataset}, model={"name": model}, local={"epochs": 1})
    assert [panel.title for panel in panels(tmp_path, general("accuracy"))] == ["CIFAR-10", "CIFAR-100"]


def test_populations_have_panels_of_their_own(make_run, tmp_path):
    for clients in (10, 50):
        for method in ("fedavg", "fedgela"):
            make_run(method, federation={"num_clients": clients})
    found = panels(tmp_path, paper_figure("fg-f5")[0])
    assert [(panel.title, panel.y.label) for panel in found] == [
        ("K = 10", "angle, local heads (°)"),
        ("K = 10", "angle, global head (°)"),
        ("K = 50", "angle, local heads (°)"),
        ("K = 50", "angle, global head (°)"),
    ]


def test_variants_have_the_papers_names_and_others_show_their_knobs(make_run, tmp_path):
    make_run("fedblade", method={"decorr.kind": "logdet", "lambda_decorr": 0.005})
    make_run("fedblade", method={"decorr.kind": "feddecorr", "lambda_decorr": 0.1})
    make_run("fedblade", method={"gamma_pba": 0.0})
    make_run("fedprox", method={"mu": 0.1})
    make_run("fedprox", method={"mu": 0.01})
    [panel] = panels(tmp_path, paper_figure("fb-f3")[0])
    names = {panel.names[line.index] for line in panel.lines}
    assert names == {"FedBlade", "FedBlade-FedDecorr", "FedBlade w/o PBA", "FedProx (mu=0.1)", "FedProx (mu=0.01)"}


def test_a_setting_that_a_run_lacks_is_left_out_of_its_name(make_run, tmp_path):
    make_run("fedprox")
    make_run("fedprox", method={"mu": 0.1})
    make_run("moon", method={"inner.tau": 0.5})
    make_run("moon", method={"outer.tau": 0.5})
    [panel] = panels(tmp_path, general("accuracy"))
    names = {name for name, _ in by_name(panel)}
    assert names == {"fedprox", "fedprox (mu=0.1)", "moon (method.inner.tau=0.5)", "moon (method.outer.tau=0.5)"}


def test_no_two_runs_share_a_name_however_many_knobs_it_takes(make_run, tmp_path):
    knobs = [{"a": a, "b": a, "c": a, "d": d} for a, d in ((1, 1), (2, 1), (2, 2), (2, 3))]
    for own in knobs:
        make_run("fedblade", method=own)
    [panel] = panels(tmp_path, general("accuracy"))
    assert [name for name, _ in by_name(panel)] == [f"fedblade (a={own['a']}, d={own['d']})" for own in knobs]


def test_runs_that_differ_only_in_what_was_measured_are_not_told_apart_by_it(make_run, tmp_path):
    make_run("fedavg", 1)
    config = make_run("fedavg", 2) / "config.toml"
    config.write_text(config.read_text() + '[evaluation]\nmetrics = ["accuracy", "nc1"]\n')
    [panel] = panels(tmp_path, general("accuracy"))
    assert {panel.names[line.index] for line in panel.lines} == {"fedavg"}


def test_fields_of_one_label_in_panels_of_their_own_are_named(make_run, tmp_path):
    run = make_run("fedbabu")
    first, second = panels(tmp_path, paper_figure("fr-f2")[0])
    assert (first.title, second.title) == ("observed", "unobserved")
    assert by_name(second)["CE", ""] == tuple(row["alignment_unobserved"] for row in history(run))


def test_the_ratio_of_spectra_stands_in_the_title(make_run, tmp_path):
    runs = [make_run(partition={"alpha": alpha}) for alpha in (0.01, 0.25)]
    found = panels(tmp_path, paper_figure("fd-f4")[0])
    ratios = [history(run)[-1]["spectrum_ratio"] for run in runs]
    assert [panel.title for panel in found] == [f"α = 0.01, R = {ratios[0]:.2f}", f"α = 0.25, R = {ratios[1]:.2f}"]


def test_methods_without_a_projection_show_the_rank_of_their_features(make_run, tmp_path):
    plain = make_run("fedavg", drop=("erank_proj_correlation",))
    projected = make_run("fedetf")
    [panel] = panels(tmp_path, paper_figure("fb-f4")[0])
    found = by_name(panel)
    assert found["FedAvg", ""] == tuple(row["erank_feature_correlation"] for row in history(plain))
    assert found["FedETF", ""] == tuple(row["erank_proj_correlation"] for row in history(projected))


def test_an_undefined_field_leaves_the_others_of_its_metric(make_run, tmp_path):
    make_run(drop=("alignment_erased",))
    [panel] = panels(tmp_path, paper_figure("fr-f9")[0], strict=True)
    assert [line.part for line in panel.lines] == ["observed", "unobserved"]


def test_a_sweep_has_a_point_per_value_and_a_level_for_methods_without_the_setting(make_run, tmp_path):
    ends = {}
    for length in (1e6, 1e4, 1e5):
        runs = [make_run("fedgela", seed, method={"E_W": length}) for seed in (1, 2)]
        ends[length] = [json.loads((run / "summary.json").read_text())["general_accuracy"] for run in runs]
    reference = json.loads((make_run("fedavg") / "summary.json").read_text())
    general_panel, personal_panel = panels(tmp_path, paper_figure("fg-f4")[0])
    level, sweep = general_panel.lines
    assert (general_panel.names[level.index], level.series.is_level, level.series.x) == ("FedAvg", True, ())
    assert level.series.y == (reference["general_accuracy"],)
    assert sweep.series.x == (1e4, 1e5, 1e6)
    assert sweep.series.y == pytest.approx([fmean(ends[x]) for x in (1e4, 1e5, 1e6)])
    assert sweep.series.low == tuple(min(ends[x]) for x in (1e4, 1e5, 1e6))
    assert personal_panel.y.label == "personal accuracy (%)"


def test_a_sweep_of_one_setting_holds_the_others_at_their_usual_value(make_run, tmp_path):
    for cohort in (2, 4, 8):
        make_run("feddr_plus", federation={"clients_per_round": cohort}, method={"beta": 0.9})
    for epochs in (1, 5):
        make_run("feddr_plus", local={"epochs": epochs}, method={"beta": 0.9})
    make_run("feddr_plus", method={"beta": 0.5})
    found = [panels(tmp_path, part) for part in paper_figure("fr-f7")]
    assert [panel.lines[0].series.x for [panel] in found] == [(2.0, 4.0, 8.0), (1.0, 3.0, 5.0), (0.5, 0.9)]
    assert all(len(panel.lines) == 1 for [panel] in found)


def test_fine_tuning_is_drawn_by_iteration(make_run, tmp_path):
    run = make_run("fedetf", method={"proj_dim": 10})
    [panel] = panels(tmp_path, paper_figure("fe-f6")[1])
    assert list(panel.lines[0].series.y) == json.loads((run / "summary.json").read_text())["personal_curve"]


def test_label_maps_are_class_by_client_and_shown_once_per_partition(make_run, tmp_path):
    runs = [make_run(method) for method in ("fedavg", "fedetf")]
    shared = (runs[0] / "partition.json").read_text()
    (runs[1] / "partition.json").write_text(shared)
    [panel] = panels(tmp_path, general("label-map"))
    assert isinstance(panel, MatrixPanel)
    assert [list(column) for column in zip(*panel.values, strict=True)] == json.loads(shared)["counts"]


def test_a_table_of_one_seed_among_several_names_it(make_run, tmp_path):
    runs = [make_run("fedavg", seed) for seed in (8, 9)]
    [panel] = panels(tmp_path, general("label-map"))
    assert panel.title == "seed 8"
    counts = json.loads((runs[0] / "partition.json").read_text())["counts"]
    assert [list(column) for column in zip(*panel.values, strict=True)] == counts


def test_cosines_have_a_panel_per_method(make_run, tmp_path):
    runs = [make_run(method) for method in ("fedavg", "fedetf")]
    found = panels(tmp_path, general("class-cosines"))
    assert [panel.title for panel in found] == ["fedavg", "fedetf"]
    assert [list(row) for row in found[1].values] == arrays(runs[1])["class_cosines"]


def test_general_figures_leave_out_what_no_run_has(make_run, tmp_path):
    make_run(drop=("nc_error", "nc_error_centred", "local_spectrum", "clients", "partition", *DRIFT))
    assert [panel.y.label for panel in panels(tmp_path, general("neural-collapse"))] == [
        "NC1 of features, unit",
        "NC2 of features, normalised",
    ]
    for name in ("local-global-spectrum", "client-accuracy", "label-map", "drift"):
        assert panels(tmp_path, general(name)) == []


@pytest.mark.parametrize(
    ("figure", "drop", "said"),
    [
        ("fd-f2", ("spectrum",), ["needs spectrum,", 'evaluation.metrics = [..., "spectrum"]']),
        ("fd-f4", ("spectrum_ratio",), ["needs spectrum_ratio,", '"spectrum_ratio"']),
        ("fe-f5", ("nc_error",), ["nc_error", '"nc_error"']),
        ("fr-f5", ("alignment_gap_observed", "alignment_gap_unobserved"), ["alignment_gap_observed", '"alignment"']),
        ("fr-f3", ("test_accuracy",), ["test_accuracy", '"accuracy"']),
        ("fe-f7", ("partition",), ["label_counts", "partition"]),
        ("fg-f4", (), ["method.E_W", "none of these has it as a number", "fedblade sweep"]),
        ("fr-f7", (), ["federation.clients_per_round", "these have 4,", "fedblade sweep"]),
    ],
)
def test_a_papers_figure_without_its_numbers_says_how_to_have_them(make_run, tmp_path, figure, drop, said):
    make_run(drop=drop)
    with pytest.raises(Misconfigured) as error:
        panels(tmp_path, paper_figure(figure)[0], strict=True)
    for words in (figure, *said):
        assert words in str(error.value)


@pytest.mark.parametrize(("figure", "key"), [("fb-f6", "lambda_decorr"), ("fb-f7", "gamma_pba")])
def test_runs_without_a_sweep_are_refused_and_two_values_are_enough(make_run, tmp_path, figure, key):
    part = paper_figure(figure)[0]
    for seed in (1, 2):
        make_run("fedblade", seed, method={key: 0.5})
    make_run("fedblade", 1, method={key: 0.1}, dataset={"name": "cifar10"})
    with pytest.raises(
        Misconfigured, match=rf"'{figure}' needs runs that differ in method.{key}; these have 0.1, 0.5, and"
    ):
        panels(tmp_path, part, strict=True)
    make_run("fedblade", 1, method={key: 0.1})
    assert (0.1, 0.5) in [panel.lines[0].series.x for panel in panels(tmp_path, part, strict=True)]


def test_a_method_without_numbers_keeps_its_place_among_the_colours(make_run, tmp_path):
    make_run("fedavg", drop=("nc_error", "nc_error_centred"))
    make_run("fedblade")
    first, second, third = panels(tmp_path, general("neural-collapse"))
    assert [panel.names for panel in (first, second, third)] == [("fedavg", "fedblade")] * 3
    assert [third.names[line.index] for line in third.lines] == ["fedblade"]


def test_panels_of_variants_name_theirs(make_run, tmp_path):
    make_run()
    for figure, kinds in (("nc1-variants", ("unit", "ratio", "pinv")), ("nc2-variants", ("distance", "normalised"))):
        labels = [panel.y.label for panel in panels(tmp_path, general(figure))]
        assert [label.endswith(kind) for label, kind in zip(labels, kinds, strict=False)] == [True] * len(kinds)
        assert len(set(labels)) == len(labels)


def test_the_page_and_the_figure_draw_the_same_measures_of_neural_collapse(make_run, tmp_path):
    make_run()
    drawn = [number.key.replace("_", "-") for numbers in general("neural-collapse").panels for number in numbers]
    assert drawn == [chart.name for chart in section_charts(group_runs(read_runs([tmp_path / "runs"])), "geometry")]


def test_alignment_has_the_gap_of_erased_classes(make_run, tmp_path):
    run = make_run("fedbabu")
    _, gap = panels(tmp_path, general("alignment"))
    assert by_name(gap)["fedbabu", "erased"] == tuple(row["alignment_gap_erased"] for row in history(run))


def test_nothing_is_estimated_or_called_reliable_where_there_is_no_global_model(make_run, tmp_path):
    make_run("fedavg")
    own = make_run("local_ce")
    (own / "summary.json").write_text(
        json.dumps({"method": "local_ce", "status": "finished", "accuracy_of": "personal"})
    )
    [reliable] = panels(tmp_path, general("reliability"))
    assert [reliable.names[line.index] for line in reliable.lines] == ["fedavg"]
    [estimated], [measured] = (panels(tmp_path, general(f"client-accuracy{kind}")) for kind in ("-estimated", ""))
    assert [estimated.names[line.index] for line in estimated.lines] == ["fedavg"]
    assert [measured.names[line.index] for line in measured.lines] == ["fedavg", "local_ce"]
