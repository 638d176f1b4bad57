"""How often diagnostics are measured if nobody says it: by counted operations, and alike everywhere."""

import pytest

import fedblade
from fedblade.runs import RunListener, load_config, prepare
from fedblade.runs._rhythm import RoundWork, round_work

SMALL = {
    "model": "mlp", "dim": 6, "hidden": [8], "num_clients": 4, "clients_per_round": 2, "rounds": 2, "device": "cpu",
    "method": "fedavg", "epochs": 1,
}  # fmt: skip


def work_of(**changes):
    setup = prepare(load_config("quickstart", SMALL | changes)[0])
    return round_work(setup.config, setup.problem, setup.start, setup.planner, setup.metrics, len(setup.test_order))


@pytest.mark.parametrize(
    ("training", "diagnostics", "rhythm"), [(1.0, 2e10, 1), (1.0, 3e10, 10), (3e11, 3e10, 1), (2.9e11, 3e10, 10)]
)
def test_what_is_little_and_what_is_a_tenth_is_measured_each_round(training, diagnostics, rhythm):
    assert RoundWork(training, diagnostics).rhythm == rhythm


def test_training_is_three_passes_of_every_sample_of_a_batch():
    one, two = work_of(metrics="accuracy"), work_of(metrics="accuracy", epochs=2)
    assert one.diagnostics == 0
    assert two.training == 2 * one.training > 0
    # Products of weights and inputs: 64 × 8 + 8 × 6, two operations each, three passes, two clients.
    setup = prepare(load_config("quickstart", SMALL)[0])
    steps = sum(setup.planner.workload(round(setup.planner.mean_samples), setup.planner.phases).steps)
    assert one.training == 2 * steps * 32 * 3 * 2 * (64 * 8 + 8 * 6)


def test_metrics_of_clients_cost_passes_over_the_test_set_by_every_client():
    test = len(prepare(load_config("quickstart", SMALL)[0]).test_order)
    spectrum, first, all_ = (
        work_of(metrics=["accuracy", name]) for name in ("spectrum", "local_spectrum", "alignment")
    )
    forward = 2 * (64 * 8 + 8 * 6)
    assert first.diagnostics - spectrum.diagnostics == pytest.approx(test * forward), "one client"
    assert all_.diagnostics - spectrum.diagnostics == pytest.approx(2 * 2 * test * forward), "two, before and after"


def rounds_with(result, name):
    return [row["round"] for row in result.history if name in row]


def costly(monkeypatch):
    monkeypatch.setattr("fedblade.runs._rhythm._LITTLE", 0.0)
    return {**SMALL, "rounds": 12, "metrics": ["accuracy", "alignment"]}


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_costly_diagnostics_are_measured_every_tenth_round_and_at_the_end(monkeypatch, engine):
    notes = []

    class Notes(RunListener):
        def on_note(self, text):
            notes.append(text)

    result = fedblade.run(engine=engine, listener=Notes(), **costly(monkeypatch))
    assert rounds_with(result, "test_accuracy") == list(range(1, 13))
    assert rounds_with(result, "alignment_observed") == [10, 12]
    assert any("after every 10th round and the last one" in note for note in notes)
    each = fedblade.run(
        engine=engine, **costly(monkeypatch), **{"evaluation.diagnostics_every": 1, "listener": Notes()}
    )
    assert rounds_with(each, "alignment_observed") == list(range(1, 13))
    assert [row["test_accuracy"] for row in each.history] == [row["test_accuracy"] for row in result.history]


def test_a_run_that_goes_on_measures_in_the_same_rounds(monkeypatch, tmp_path):
    settings = costly(monkeypatch)

    class StopAfterTen(RunListener):
        def on_round(self, record):
            if record["round"] == 10:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedblade.run(out=tmp_path / "run", listener=StopAfterTen(), **settings)
    result = fedblade.run(out=tmp_path / "run", resume=True, listener=RunListener())
    assert rounds_with(result, "alignment_observed") == [10, 12]
