"""Runs that end before their last round: when, with what, and what makes them go on."""

from dataclasses import replace

import pytest

import fedblade
from fedblade.config.run_config import complete_config
from fedblade.core.errors import Misconfigured
from fedblade.flower.app import Deployment
from fedblade.results import RunDirectory
from fedblade.runs import RunListener, finished_summary, load_config
from fedblade.runs._ending import standing_stop, stop_facts, stop_mark, wall_seconds
from support.node_runs import Far, alone, config_of, digest

SMALL = {
    "model": "mlp", "dim": 6, "hidden": [8], "num_clients": 4, "clients_per_round": 2, "rounds": 8, "device": "cpu",
    "metrics": "accuracy", "method": "fedavg", "listener": RunListener(),
}  # fmt: skip


def config_with(**changes):
    return load_config("quickstart", {"rounds": 10} | changes)[0]


def history_of(*accuracies, seconds=1.0):
    return [{"round": n, "test_accuracy": value, "wall_seconds": seconds} for n, value in enumerate(accuracies, 1)]


@pytest.mark.parametrize(
    ("accuracies", "patience", "ends"),
    [
        ((10.0, 20.0, 20.0), 2, False),
        ((10.0, 20.0, 20.0, 20.0), 2, True),
        ((10.0, 20.0, 19.0, 21.0), 2, False),
        ((10.0, 20.0, None, 19.0, None), 2, False),
        ((10.0, 20.0, None, 19.0, None, 18.0), 2, True),
        ((None, None, None), 1, False),
        ((10.0, 9.0), "none", False),
    ],
)
def test_patience_counts_evaluated_rounds_since_the_highest_accuracy(accuracies, patience, ends):
    mark = stop_mark(history_of(*accuracies), config_with(patience=patience), asked=False)
    assert mark == ({"reason": "patience", "limit": patience, "rounds": 10} if ends else None)


def test_time_is_that_of_all_rounds_and_the_last_round_needs_no_reason():
    rounds = history_of(10.0, 20.0, seconds=2.0)
    assert wall_seconds([*rounds, {"round": 3, "seconds": 0.5}]) == 4.5, "a round of an earlier version"
    assert stop_mark(rounds, config_with(max_seconds=4.0), asked=False)["reason"] == "max_seconds"
    assert stop_mark(rounds, config_with(max_seconds=4.1), asked=False) is None
    assert stop_mark(rounds, config_with(max_seconds=4.0, rounds=2, patience=1), asked="why not") is None


@pytest.mark.parametrize(
    ("mark", "stands", "goes_on"),
    [
        ({"reason": "patience", "limit": 2}, {"patience": 1}, {"patience": 3}),
        ({"reason": "patience", "limit": 2}, {"patience": 2, "rounds": 20}, {"patience": "none"}),
        ({"reason": "max_seconds", "limit": 3.0}, {"max_seconds": 2.0}, {"max_seconds": 5.0}),
        ({"reason": "callback", "text": ""}, {}, {"rounds": 20}),
    ],
)
def test_a_run_goes_on_only_if_its_reason_is_gone(mark, stands, goes_on):
    history = history_of(10.0, 20.0, 15.0, 15.0)
    history[-1]["stopped"] = mark | {"rounds": 10}
    assert standing_stop(history, config_with(**stands)) == mark | {"rounds": 10}
    assert standing_stop(history, config_with(**goes_on)) is None
    assert stop_facts(history)["stopped"]["round"] == 4
    assert standing_stop(history[:-1], config_with(**stands)) is None


def test_a_method_that_changes_its_model_at_the_end_does_so_when_it_ends_early(tmp_path):
    ccvr = {**SMALL, "method": "ccvr", "patience": 1}
    result = fedblade.run(out=tmp_path / "run", **ccvr)
    assert result.summary["stopped"]["reason"] == "patience"
    assert result.summary["calibrated"]
    assert result.summary["accuracy"] == result.history[-1]["calibrated_accuracy"]
    with pytest.raises(Misconfigured, match=r"method 'ccvr' has then changed its model. Such a run cannot go on"):
        fedblade.run(out=tmp_path / "run", resume=True, patience=5, listener=RunListener())
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_personal_models_are_tuned_after_an_early_end_and_again_after_it_went_on(tmp_path):
    tuned = {**SMALL, "method": "fedavg-ft", "patience": 1}
    early = fedblade.run(out=tmp_path / "run", **tuned)
    assert len(early.clients) == 4
    whole = fedblade.run(**{**tuned, "patience": "none"})
    later = fedblade.run(out=tmp_path / "run", resume=True, patience="none", listener=RunListener())
    assert later.clients == whole.clients
    assert (tmp_path / "run" / "former-1" / "clients.jsonl").is_file()


def test_a_run_killed_between_its_last_round_and_its_summary_ends_where_it_was(tmp_path):
    class Killed(RunListener):
        def on_round(self, record):
            if "stopped" in record:
                raise KeyboardInterrupt

    keys = {**SMALL, "patience": 1}
    with pytest.raises(KeyboardInterrupt):
        fedblade.run(out=tmp_path / "run", **{**keys, "listener": Killed()})
    done = fedblade.run(out=tmp_path / "run", resume=True, listener=RunListener())
    assert len(done.history) == len(fedblade.run(**keys).history)
    assert done.summary["stopped"]["reason"] == "patience"


def test_a_study_takes_a_run_that_ended_early_as_finished(tmp_path):
    fedblade.run(out=tmp_path / "run", **{**SMALL, "patience": 1})
    directory = RunDirectory(tmp_path / "run")
    config = complete_config(directory.stored_config())
    assert finished_summary(directory, config) is not None
    more = replace(config, stop=config.stop.model_copy(update={"patience": 7}))
    assert finished_summary(directory, more) is None


def test_nodes_end_with_the_same_round(tmp_path):
    config = config_of("fedavg", **{"stop.patience": 1, "rounds": 20})
    near, far = alone(config), Far(config, tmp_path, Deployment()).trained()
    assert len(far.history) == len(near.history) < 20
    assert digest(far) == digest(near)
