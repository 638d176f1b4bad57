"""What nodes measure on samples of their own: it adds up, a quorum must answer, and nonsense is left out."""

from dataclasses import replace

import numpy as np
import pytest

from fedblade.core.errors import RunFailed
from fedblade.engines.nodes import _node_models
from support.node_runs import config_of
from support.three_wards import CHANGES, apart, saved, together, ward


def test_own_models_are_measured_on_the_nodes_own_samples(tmp_path):
    config = config_of("fedper", **CHANGES, **{"evaluation.protocol": "ft"})
    parts = [ward(k) for k in range(3)]
    far = apart(tmp_path, saved(tmp_path / "data", parts), config=config).trained()
    assert len(far.clients) == 3
    assert all(0 <= row["accuracy"] <= 100 for row in far.clients)
    for row, part in zip(far.clients, parts, strict=True):
        hits = row["accuracy"] / 100 * len(part[3])
        assert hits == pytest.approx(round(hits), abs=1e-6)
        assert row["test_samples"] == len(part[3])
    mean = np.mean([row["accuracy"] for row in far.clients])
    assert far.history[-1]["test_accuracy"] == pytest.approx(mean)


def measured(change):
    """What the first node measures, changed."""

    def tamper(request, reply):
        if request.kind == "measure" and request.facts["client"] == 0:
            return [replace(reply, tensors={name: change(name, leaf) for name, leaf in reply.tensors.items()})]
        return [reply]

    return tamper


def test_measures_that_cannot_be_are_left_out(tmp_path):
    config = config_of("fedavg", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    files = saved(tmp_path / "data", parts)
    whole = apart(tmp_path / "a", files, config=config).trained().history[0]
    run = apart(tmp_path / "b", files, config=config)
    run.transport.tamper = measured(lambda name, leaf: leaf * np.nan if name.endswith("count") else leaf)
    row = run.trained().history[0]
    (event,) = run.refused()
    assert (event["node"], event["round"]) == ("50", 1)
    assert "count' holds NaN" in event["reason"]
    others = sum(len(part[3]) for part in parts[1:])
    hits = row["test_accuracy"] / 100 * others
    assert hits == pytest.approx(round(hits), abs=1e-6)
    # A diverged model's loss is infinite on an honest node too; its accuracy still counts.
    run = apart(tmp_path / "c", files, config=config)
    run.transport.tamper = measured(lambda name, leaf: leaf * np.inf if name.endswith("loss") else leaf)
    row = run.trained().history[0]
    assert run.refused() == []
    assert row["test_loss"] is None
    assert row["test_accuracy"] == whole["test_accuracy"]


def test_someone_must_measure(tmp_path):
    config = config_of("fedavg", rounds=1, **CHANGES)
    run = apart(tmp_path, saved(tmp_path / "data", [ward(k) for k in range(3)]), config=config)
    run.transport.tamper = lambda request, reply: [] if request.kind == "measure" else [reply]
    with pytest.raises(RunFailed, match=r"0 of 3 clients measured the model after round 1.*--resume"):
        run.trained()


def test_a_quorum_must_measure_and_who_does_not_is_named(tmp_path):
    config = config_of("fedavg", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    files = saved(tmp_path / "data", parts)

    def silent(*clients):
        return lambda request, reply: (
            [] if request.kind == "measure" and request.facts["client"] in clients else [reply]
        )

    one = apart(tmp_path / "one", files, config=config)
    one.transport.tamper = silent(1)
    row = one.trained().history[0]
    assert [(event["event"], event["client"]) for event in one.events] == [("late", 1), ("not measured", 1)]
    hits = row["test_accuracy"] / 100 * (len(parts[0][3]) + len(parts[2][3]))
    assert hits == pytest.approx(round(hits), abs=1e-6)
    two = apart(tmp_path / "two", files, config=config)
    two.transport.tamper = silent(0, 1)
    with pytest.raises(RunFailed, match=r"1 of 3 clients measured.*flower.quorum.*did not answer: clients 0 and 1"):
        two.trained()


def test_clients_that_were_silent_are_asked_to_measure_again(tmp_path):
    config = config_of("fedavg", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    asked = []

    def late(request, reply):
        if request.kind == "measure":
            asked.append(request.facts["client"])
            return [] if asked.count(request.facts["client"]) == 1 and request.facts["client"] > 0 else [reply]
        return [reply]

    run = apart(tmp_path, saved(tmp_path / "data", parts), config=config)
    run.transport.tamper = late
    assert run.trained().history[0]["test_accuracy"] == together(parts, config).history[0]["test_accuracy"]
    assert sorted(asked) == [0, 1, 1, 2, 2]


def test_the_quorum_is_one_of_all_clients_however_they_are_asked(tmp_path, monkeypatch):
    """Two at a time leave the third alone, who may be silent all the same."""
    monkeypatch.setattr(_node_models, "_AT_A_TIME", 2)
    config = config_of("fedavg", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    run = apart(tmp_path, saved(tmp_path / "data", parts), config=config)
    run.transport.tamper = lambda request, reply: [] if request.kind == "measure" and request.node == 52 else [reply]
    run.trained()
    assert [request.node for request in run.transport.asked if request.kind == "measure"] == [50, 51, 52]
    assert [(event["event"], event["client"]) for event in run.events] == [("late", 2), ("not measured", 2)]
