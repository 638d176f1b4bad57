"""A person wants a run to end when the accuracy rises no more, as other trainers do with `patience`."""

import pytest

import fedblade
from fedblade.runs import RunListener

SMALL = {
    "model": "mlp", "dim": 6, "hidden": [8], "num_clients": 4, "clients_per_round": 2, "rounds": 40, "device": "cpu",
    "metrics": "accuracy", "method": "fedavg", "patience": 2,
}  # fmt: skip


class Notes(RunListener):
    def __init__(self):
        self.texts = []

    def on_note(self, text):
        self.texts.append(text)


def last_round(accuracies, patience):
    """The round with which a run of these accuracies ends, counted by hand."""
    best, waited = -1.0, 0
    for round_, accuracy in enumerate(accuracies, 1):
        best, waited = (accuracy, 0) if accuracy > best else (best, waited + 1)
        if waited == patience:
            return round_
    return None


@pytest.fixture(scope="module")
def stopped():
    return fedblade.run(listener=RunListener(), **SMALL, **{"evaluation.on": "validation"})


def test_it_ends_after_as_many_rounds_without_a_higher_accuracy(stopped):
    accuracies = [row["test_accuracy"] for row in stopped.history]
    assert len(accuracies) == last_round(accuracies, 2) < 40
    assert stopped.summary["stopped"]["reason"] == "patience"
    assert stopped.summary["status"] == "finished"
    assert stopped.summary["flags"] == []


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_every_engine_ends_with_the_same_round(stopped, engine):
    again = fedblade.run(listener=RunListener(), engine=engine, **SMALL, **{"evaluation.on": "validation"})
    assert len(again.history) == len(stopped.history)


def test_on_the_test_set_it_warns_and_says_how_to_do_better():
    notes = Notes()
    result = fedblade.run(listener=notes, **SMALL)
    assert any("evaluation.on=validation holds a tenth of every client's" in text for text in notes.texts)
    optimistic = "stop.patience chose the last round on the test set, so the accuracy is optimistic"
    assert result.summary["flags"] == [optimistic]


def test_the_last_round_has_all_metrics_of_the_model():
    chosen = {**SMALL, "metrics": ["accuracy", "spectrum"], "evaluation.diagnostics_every": 1000}
    result = fedblade.run(listener=RunListener(), **chosen)
    measured = [row["round"] for row in result.history if "significant_values" in row]
    assert measured == [len(result.history)]


def test_more_patience_lets_it_go_on_and_the_same_patience_does_not(tmp_path):
    short = fedblade.run(listener=RunListener(), out=tmp_path / "run", **SMALL)
    whole = fedblade.run(listener=RunListener(), **{**SMALL, "patience": 4})
    assert len(fedblade.run(out=tmp_path / "run", resume=True, listener=RunListener()).history) == len(short.history)
    longer = fedblade.run(out=tmp_path / "run", resume=True, patience=4, listener=RunListener())
    assert [row["test_accuracy"] for row in longer.history] == [row["test_accuracy"] for row in whole.history]
    assert len(longer.history) > len(short.history)
