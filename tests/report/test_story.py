"""The sections that explain: present where there is data, right in what they say."""

import json
import re
from html import unescape
from importlib import import_module

import numpy as np
import pytest

from fedblade.charts import client_chart, reliability_chart, section_charts
from fedblade.charts._arrays import bin_sums
from fedblade.charts._measures import latest_sentence
from fedblade.core.registry import metrics
from fedblade.report import build_report
from fedblade.report._explained import QUESTIONS as ASKED
from fedblade.report._explained import cost
from fedblade.report._lines import script_data
from fedblade.report._selection import select
from fedblade.results import compare, coverage_sentence, group_runs, read_runs
from support.report_runs import SCALARS, diagnose

QUESTIONS = {
    "collapse": "Do the features collapse?",
    "geometry": "Do classes separate as they should?",
    "drift": "Do clients pull in different directions?",
    "served": "Who is served?",
}


@pytest.fixture
def page(tmp_path):
    """The HTML of everything below `runs`."""
    return lambda: build_report([tmp_path / "runs"], tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def groups(tmp_path):
    return lambda: group_runs(read_runs([tmp_path / "runs"]))


def data_of(chart) -> dict:
    assert chart is not None
    return script_data(chart, most=100)


def sections(html: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', html)


def test_sections_without_data_are_left_out_and_the_metrics_that_fill_them_are_named(make_run, page):
    make_run()

    html = page()

    assert "no global model" not in html
    assert not set(QUESTIONS) & set(sections(html))
    told = re.search(r'<p class="note absent">(.*?)</p>', html)
    assert told is not None
    assert all(question in told[1] for question in QUESTIONS.values())
    assert re.search(r"--set metrics=spectrum,[\w,]*nc1,[\w,]*drift,[\w,]*classes", told[1])


def test_the_metrics_it_names_exist():
    import_module("fedblade.diagnostics")
    named = {name for question in ASKED for name in question.metrics}

    assert named <= set(metrics.names())


def test_with_all_diagnostics_the_sections_come_in_the_order_of_the_story(make_run, page):
    for quality, method in enumerate(("fedavg", "fedblade"), 1):
        diagnose(make_run(method), quality=quality / 2)

    html = page()

    order = [
        *("results", "loss", "labels", *QUESTIONS, "cost", "runs"),
        *("participation", "again", "configuration", "versions"),
    ]
    assert sections(html) == order
    assert 'class="note absent"' not in html
    for name in SCALARS:
        assert f'aria-labelledby="{name.replace("_", "-")}-title' in html, name
    links = re.findall(r'<a href="#(\w+)"', html)
    assert sorted(links) == sorted(order[1:])


def test_every_picture_says_how_to_read_it(make_run, page):
    for method in ("fedavg", "fedblade"):
        diagnose(make_run(method))

    figures = re.findall(r"<figure>(.*?)</figure>", page(), re.DOTALL)

    assert len(figures) > 20
    captions = [re.search(r"<figcaption>(.*?)</figcaption>", each) for each in figures]
    assert all(caption is not None and len(caption[1]) > 40 for caption in captions)


def test_last_values_are_means_over_seeds_in_words(make_run, groups):
    for method, values in (("a", (1.0, 2.0)), ("b", (5.0, 8.0))):
        for seed, value in enumerate(values):
            run = make_run(method, seed, accuracies=[1.0, 2.0])
            lines = [{"round": 1, "x": 99.0}, {"round": 2, "x": value}]
            (run / "history.jsonl").write_text("\n".join(map(json.dumps, lines)))

    said = latest_sentence(groups(), "x", ".1f")

    assert said == "After round 2, mean over seeds: a 1.5 and b 6.5."


def test_many_methods_are_summed_up_by_the_lowest_and_the_highest(make_run, groups):
    for index in range(6):
        run = make_run(f"m{index}", accuracies=[1.0])
        (run / "history.jsonl").write_text(json.dumps({"round": 1 + index % 2, "x": (index * 7) % 6}))

    said = latest_sentence(groups(), "x", ".0f")

    assert said == "At the last round measured: lowest 0 with m0, highest 5 with m5."


def test_the_share_of_directions_comes_from_the_whole_spectrum(make_run, page):
    run = make_run("fedavg", accuracies=[50.0])
    spectrum = [90.0, 4.0, *[1.0] * 6, *[0.0] * 192]
    (run / "diagnostics.jsonl").write_text(json.dumps({"round": 1, "spectrum": spectrum}))

    html = page()

    assert "Here 95 % of the variance lies along 3 of 200 for fedavg at the last round." in html
    assert "the first 100 of 200" in html


def test_the_likest_classes_and_the_most_frequent_mistake_are_named(make_run, page):
    run = make_run("fedavg", accuracies=[50.0])
    cosines = [[1.0, 0.2, -0.6], [0.2, 1.0, 0.3], [-0.6, 0.3, 1.0]]
    confusion = [[6, 4, 0], [0, 9, 1], [30, 0, 70]]
    row = {"round": 1, "class_cosines": cosines, "confusion": confusion}
    (run / "diagnostics.jsonl").write_text(json.dumps(row))

    html = page()

    assert "Most alike at the last round: 1 and 2 for fedavg (0.30)." in html
    assert "the same value, -0.50 for 3 classes" in html
    assert "Most frequent mistake at the last round: 0 taken for 1 by fedavg (40.0 %)." in html


def test_pooled_classes_are_drawn_as_blocks_and_the_caption_says_so(make_run, page):
    run = make_run("fedavg", accuracies=[50.0])
    pooled = {"classes": 250, "block": 100}
    cosines = {**pooled, "values": [[0.9, 0.2, -0.6], [0.2, 0.8, 0.3], [-0.6, 0.3, None]]}
    confusion = {**pooled, "values": [[6, 4, 0], [0, 9, 1], [30, 0, 70]]}
    row = {"round": 1, "class_cosines_pooled": cosines, "confusion_pooled": confusion}
    (run / "diagnostics.jsonl").write_text(json.dumps(row))

    html = page()

    said = "the 250 classes are pooled in the order of their numbers, and a row or column stands for 100 neighbouring"
    assert html.count(said) == 2
    assert "the same value, -0.0040 for 250 classes" in html
    assert "Most alike at the last round: 100–199 and 200–249 for fedavg (0.30)." in html
    assert "Most frequent mistake at the last round: 0–99 taken for 100–199 by fedavg (40.0 %)." in html
    assert html.count("3 by 3 cells; ") == 2
    assert "class, blocks of 100" in html
    assert "answer, blocks of 100" in html


def test_clients_are_estimated_from_classes_by_their_labels(make_run, groups):
    counts = [[10, 0, 0], [5, 5, 0], [0, 1, 3], [0, 0, 0]]
    run = make_run(accuracies=[50.0], counts=counts)
    (run / "diagnostics.jsonl").write_text(json.dumps({"round": 1, "class_accuracy": [90.0, 50.0, 10.0]}))

    picture = client_chart(groups())

    expected = np.quantile([90.0, 70.0, 20.0], np.linspace(0, 1, 21))
    assert data_of(picture)["lines"][0]["y"] == pytest.approx(expected.tolist(), rel=1e-3)
    assert "Estimated" in picture.reading
    assert "Nine of ten clients have at least 30.0 % with fedavg." in picture.seen


def test_measured_clients_are_preferred_and_said_to_be_measured(make_run, groups):
    run = make_run(accuracies=[50.0])
    (run / "diagnostics.jsonl").write_text(json.dumps({"round": 1, "class_accuracy": [1.0] * 10}))
    rows = [{"client": k, "accuracy": value} for k, value in enumerate((80.0, None, 40.0, 60.0))]
    (run / "clients.jsonl").write_text("\n".join(map(json.dumps, rows)))

    picture = client_chart(groups())

    values = data_of(picture)["lines"][0]["y"]
    assert (values[0], values[10], values[-1]) == (40, 60, 80)
    assert "Measured" in picture.reading


def test_where_only_some_were_measured_all_are_estimated(make_run, groups):
    for method in ("a", "b"):
        run = make_run(method, accuracies=[50.0])
        (run / "diagnostics.jsonl").write_text(json.dumps({"round": 1, "class_accuracy": [30.0] * 10}))
    (run / "clients.jsonl").write_text(json.dumps({"client": 0, "accuracy": 99.0}))

    picture = client_chart(groups())

    assert "Estimated" in picture.reading
    assert all(set(line["y"]) == {30} for line in data_of(picture)["lines"])


def by_client(run, accuracies: list[float]) -> None:
    rows = [{"client": k, "accuracy": value} for k, value in enumerate(accuracies)]
    (run / "clients.jsonl").write_text("\n".join(map(json.dumps, rows)))


def with_own_models(make_run, split: str):
    """A run with a global model, and one without whose personal models were measured on what the split says."""
    own = make_run("local_ce", accuracies=[20.0], summary={"accuracy_of": "personal"}, test_split=split)
    for run in (own, make_run("fedavg", accuracies=[50.0], test_split=split)):
        (run / "diagnostics.jsonl").write_text(json.dumps({"round": 1, "class_accuracy": [20.0] * 10}))
    by_client(own, [70.0, 90.0])


def test_own_models_are_measured_where_there_is_no_global_model_to_estimate_by(make_run, groups):
    with_own_models(make_run, "proportional")

    picture = client_chart(groups())

    fedavg, local = data_of(picture)["lines"]
    assert (fedavg["g"], set(fedavg["y"])) == (0, {20})
    assert (local["g"], local["y"][0], local["y"][-1]) == (1, 70, 90)
    assert "Estimated: the final global model's accuracy" in picture.reading
    assert (
        "Measured for local_ce, without a global model: personal models on their clients' samples." in picture.reading
    )


def test_own_models_measured_on_everything_are_not_set_beside_estimates(make_run, groups):
    with_own_models(make_run, "global")

    picture = client_chart(groups())

    assert [line["g"] for line in data_of(picture)["lines"]] == [0]
    assert "Left out: local_ce. They have no global model" in picture.reading
    assert "own test samples" not in picture.reading


@pytest.mark.parametrize(
    ("split", "on"),
    [
        ("global", "the whole test set, the same for all clients"),
        ("matched", "their own test samples"),
        ("proportional", "their own test samples"),
        ("holdout", "their own test samples"),
    ],
)
def test_what_own_models_were_measured_on_is_said_as_it_is(make_run, page, groups, split, on):
    own = {"accuracy_of": "personal", "personal_accuracy": 80.0}
    by_client(make_run("local_ce", accuracies=[50.0], summary=own, test_split=split), [70.0, 90.0])

    assert f"Personal models: the mean over clients of their personal models' accuracy on {on}." in unescape(page())
    assert client_chart(groups()).reading.endswith(f"Measured: the personal models on {on}.")


def test_own_models_on_validation_are_on_samples_of_their_clients(make_run, groups):
    run = make_run(accuracies=[50.0])
    config = run / "config.toml"
    config.write_text(config.read_text() + '[evaluation]\non = "validation"\n')
    by_client(run, [70.0])

    assert client_chart(groups()).reading.endswith("the personal models on their own test samples.")


def test_splits_that_differ_are_told_apart(make_run, page):
    for method, split in (("fedavg-ft", "matched"), ("local_ce", "global")):
        make_run(method, summary={"personal_accuracy": 80.0}, test_split=split)

    on = "their own test samples (fedavg-ft) or on the whole test set, the same for all clients (local_ce)"
    assert f"personal models' accuracy on {on}." in unescape(page())


def test_means_over_seeds_are_not_rounded_to_whole_directions(make_run, page):
    for method, value in (("fedavg", 8.6), ("fedblade", 9.4)):
        run = make_run(method, accuracies=[50.0])
        (run / "history.jsonl").write_text(json.dumps({"round": 1, "significant_values": value}))

    assert "After round 1: fedavg 8.6 and fedblade 9.4." in page()


def test_alignment_is_of_what_the_classifier_receives(make_run, page):
    diagnose(make_run())

    said = captions(page())

    for name in ("alignment-observed", "alignment-erased"):
        assert "what the classifier receives" in said[name]
        assert "projected" in said[name]
    assert "features of a test sample" not in said["alignment-observed"]


@pytest.mark.parametrize(("rounds", "last", "sentence"), [
    (8, "all 8 rounds", "after all 8 rounds."),
    (1, "only round", "after the only round."),
    (20, "last 10 rounds", "after the last 10 rounds."),
])  # fmt: skip
def test_the_page_says_which_rounds_the_mean_is_over(make_run, page, rounds, last, sentence):
    for method in ("fedavg", "fedblade"):
        for seed in (1, 2):
            make_run(method, seed, rounds=rounds)

    html = page()

    over = last if last.startswith("all") else f"the {last}"
    assert f"Highest mean accuracy over {over}: " in html
    assert f">{last}, %</th>" in html
    assert sentence in html
    assert rounds == 20 or not re.search("last (10|ten)", html)


def test_what_was_left_out_is_a_notice(make_run, page):
    run = make_run(folder="mine")
    (run / "diagnostics.jsonl").write_text('{"round": 1}\ngarbage\n')

    assert (
        '<p class="notice" role="note">Left out, because it cannot be read: line 2 of mine/diagnostics.jsonl.</p>'
        in page()
    )


def captions(html: str) -> dict[str, str]:
    """What each small picture says, by its name."""
    found = re.findall(r"<figure[^>]*>(.*?)</figure>", html, re.DOTALL)
    told = (
        (re.search(r'id="([\w-]+)-title"', each), re.search(r"<figcaption>(.*?)</figcaption>", each)) for each in found
    )
    return {name[1]: unescape(said[1]) for name, said in told if name and said}


def test_captions_say_what_is_drawn_of_methods_without_a_global_model(make_run, page):
    diagnose(make_run("fedavg"))
    own = make_run("local", summary={"accuracy_of": "personal", "bytes_up": 0, "bytes_down": 0})
    diagnose(own)
    lines = [json.loads(line) for line in (own / "history.jsonl").read_text().splitlines()]
    sent = {"bytes_up": 0, "bytes_down": 0, "drift_norm": None}
    (own / "history.jsonl").write_text("".join(json.dumps(line | sent) + "\n" for line in lines))

    html = page()

    said = captions(html)
    means = "local has no global model; shown for it is the mean over the personal models."
    of_model = ("loss-wide", "spectrum-wide", "erank-feature", "nc-error", "angle-existing-global")
    assert all(means in said[name] for name in (*of_model, "by-class", "ece", "per-second"))
    assert "Left out: local. They have no global model" in said["by-client"]
    expected = (
        "local has no global model; shown for it is the accuracy that a client can expect, from its personal model's"
    )
    assert all(expected in said[name] for name in ("worst-decile-accuracy", "client-accuracy-mean"))
    assert not any(means in said[name] for name in ("drift-norm", "update-cosine", "angle-existing-local"))
    assert "Left out: local, where clients send no model." in said["drift-norm"]
    assert "Left out: local, where each client has a model of its own." in said["reliability"]
    assert "Nothing is sent with local, whose line stands at 0." in said["per-byte"]
    notes = [unescape(note) for note in re.findall(r'<p class="note">(.*?)</p>', html)]
    assert sum(means in note for note in notes) == 5


def test_where_no_method_has_a_global_model_captions_say_so_once(make_run, groups):
    for method in ("a", "b"):
        make_run(method, summary={"accuracy_of": "personal"})

    assert coverage_sentence(groups(), (1, 2)) == (
        "No method here has a global model: shown is the mean over the personal models."
    )
    assert coverage_sentence(groups(), (None, 2)) == (
        "b has no global model; shown for it is the mean over the personal models. Not measured: a."
    )
    assert coverage_sentence(groups(), (1, 2), of_model=False) == ""


def test_a_measure_whose_seeds_share_no_round_is_left_out(make_run, groups, page):
    for seed in (1, 2):
        run = make_run("a", seed, accuracies=[1.0, 2.0])
        lines = [{"round": r, "test_accuracy": 1.0} | ({"erank_feature": 3.0} if r == seed else {}) for r in (1, 2)]
        (run / "history.jsonl").write_text("\n".join(map(json.dumps, lines)))

    assert section_charts(groups(), "collapse") == []
    assert 'id="accuracy"' in page()


def bins(confidence: list, accuracy: list, count: list) -> dict:
    return {"round": 1, "calibration": {"confidence": confidence, "accuracy": accuracy, "count": count}}


def test_bins_are_pooled_over_seeds_by_their_answers(make_run, groups):
    for seed, row in enumerate((bins([0.2, 0.8], [0.0, 0.5], [10, 90]), bins([0.3, 0.9], [1.0, 1.0], [30, 270]))):
        run = make_run("a", seed, accuracies=[50.0])
        (run / "diagnostics.jsonl").write_text(json.dumps(row))

    picture = reliability_chart(groups())

    assert data_of(picture)["x"] == pytest.approx(
        [100 * (0.2 * 10 + 0.3 * 30) / 40, 100 * (0.8 * 90 + 0.9 * 270) / 360]
    )
    assert data_of(picture)["lines"][0]["y"] == pytest.approx([75.0, 100 * (45 + 270) / 360])
    assert "nothing is drawn" not in picture.reading


def test_bins_with_few_answers_are_left_out_and_counted(make_run, groups):
    run = make_run("a", accuracies=[50.0])
    row = bins([None, 0.2, 0.5, 0.7, 0.9], [None, 1.0, 0.0, 0.5, 1.0], [0, 1, 19, 20, 1960])
    (run / "diagnostics.jsonl").write_text(json.dumps(row))

    picture = reliability_chart(groups())

    assert data_of(picture)["x"] == [70, 90]
    assert "Groups of fewer than 20 answers say too little and are not drawn" in picture.reading
    assert "(at most 1.0 % of a method's answers)" in picture.reading


def test_a_small_test_set_keeps_bins_with_two_in_a_hundred(make_run, groups):
    run = make_run("a", accuracies=[50.0])
    (run / "diagnostics.jsonl").write_text(json.dumps(bins([0.2, 0.5, 0.9], [1.0, 0.0, 1.0], [1, 3, 96])))

    picture = reliability_chart(groups())

    assert data_of(picture)["x"] == [50, 90]
    assert "fewer than 2 answers" in picture.reading


@pytest.mark.parametrize("broken", [None, 3, [], {}, {"confidence": [1.0], "accuracy": [1.0, 2.0], "count": [1, 2]}])
def test_broken_bins_are_none(broken):
    assert bin_sums(broken) is None


def test_accuracy_is_set_against_what_was_sent_by_then(make_run, groups):
    for seed, sent in ((1, 1_000_000), (2, 3_000_000)):
        run = make_run(seed=seed, accuracies=[10.0])
        lines = [
            {"round": r, "bytes_up": sent, "bytes_down": 0} | ({"test_accuracy": 10.0 * r * seed} if r != 2 else {})
            for r in (1, 2, 3)
        ]
        (run / "history.jsonl").write_text("\n".join(map(json.dumps, lines)))

    found = cost(select(groups(), compare(groups(), 50.0))).blocks[0].pictures[0].data

    assert found["name"] == "sent up and down, MB"
    assert found["x"] == [2, 6]
    assert found["lines"] == [{"g": 0, "y": [15, 45]}]


def test_counters_that_are_not_zero_are_listed(make_run, page):
    """What happens is added up; how things are is that of the last round, here 4 and 1 with the two seeds."""
    rows = {
        1: [{"count_idle_clients": 2, "count_dead_features": 700}, {"count_scale_clamped": 3, "count_idle_clients": 4}],
        2: [{"count_scale_clamped": 2, "count_idle_clients": 5, "count_cholesky_failures": 0},
            {"count_idle_clients": 1, "count_dead_features": 800}],
    }  # fmt: skip
    for seed, counted in rows.items():
        run = make_run("fedavg", seed, accuracies=[50.0, 60.0])
        lines = [{"round": r, **fields} for r, fields in enumerate(counted, 1)]
        (run / "history.jsonl").write_text("\n".join(map(json.dumps, lines)))
    make_run("fedetf", accuracies=[50.0])

    html = page()

    name = r"([\w ]+, (?:last round|all rounds))"
    found = dict(re.findall(rf'<th scope="row"><span class="plain">{name}</span></th>(.*?)</tr>', html))
    assert found == {
        "dead features, last round": '<td class="n">750<small>at most 800</small></td><td class="n">0</td>',
        "idle clients, last round": '<td class="n">2.5<small>at most 5</small></td><td class="n">0</td>',
        "scale clamped, all rounds": '<td class="n">5</td><td class="n">0</td>',
    }


@pytest.mark.parametrize("broken", [None, 7, "x", [], [[1.0]], {"confidence": 3}, [None] * 3, [1.0, None, 2.0]])
def test_broken_arrays_still_make_a_page(make_run, page, broken):
    names = (
        "spectrum", "local_spectrum", "class_accuracy", "confusion", "confusion_pooled", "class_cosines",
        "class_cosines_pooled", "calibration",
    )  # fmt: skip
    run = make_run(accuracies=[50.0])
    (run / "diagnostics.jsonl").write_text(json.dumps({"round": 1} | dict.fromkeys(names, broken)))
    other = make_run("other")
    diagnose(other)
    with (other / "diagnostics.jsonl").open("a") as file:
        file.write(json.dumps({"round": 99} | dict.fromkeys(names, broken)))

    html = page()

    assert not re.search(r"\b(nan|inf)\b", re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL), re.IGNORECASE)


def test_a_spectrum_of_zeros_and_rounding_below_zero_is_drawn(make_run, page):
    run = make_run(accuracies=[50.0])
    rows = [
        {"round": 1, "spectrum": [0.0] * 4, "local_spectrum": [0.0] * 4},
        {"round": 2, "spectrum": [1.0, 0.0, -1e-18]},
    ]
    (run / "diagnostics.jsonl").write_text("\n".join(map(json.dumps, rows)))

    assert 'id="collapse"' in page()
