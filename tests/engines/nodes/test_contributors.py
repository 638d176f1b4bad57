"""Who contributed to a result, how long each update was, and whose accuracy it is."""

from dataclasses import replace

import pytest

from fedblade.core.cohort import Cohort
from fedblade.core.state import MemoryStore
from fedblade.core.tree import tree_norm
from fedblade.flower.app import Deployment
from fedblade.runs import Claims
from fedblade.runs._summary import summarise
from support.node_runs import EVERYONE, Far, alone, config_of, digest
from support.three_wards import CHANGES, apart, saved, ward


def leaving(change, *left):
    """Changes the replies to training of pairs of round and client."""

    def tamper(request, reply):
        key = (request.facts.get("round"), request.facts.get("client"))
        return change(reply) if request.kind == "train" and key in left else [reply]

    return tamper


def summary_of(run, far):
    return summarise(run.setup(), far.history, "finished", far.clients)


def test_the_history_names_the_clients_whose_replies_were_added(tmp_path):
    config = config_of("fedavg", rounds=3, **EVERYONE)
    refused = leaving(lambda reply: [replace(reply, tensors={})], (1, 3))
    run = Far(config, tmp_path, tamper=lambda *given: [] if given[0].facts.get("client") == 0 else refused(*given))
    far = run.trained()
    assert [row["clients"] for row in far.history] == [[0, 1, 2, 3, 4]] * 3
    assert [row["contributors"] for row in far.history] == [[1, 2, 3, 4], [1, 2, 4], [1, 2, 3, 4]]
    assert digest(far) == digest(alone(config, {0: {0}, 1: {0, 3}, 2: {0}}))


def test_the_summary_names_clients_that_are_often_missing(tmp_path):
    config = config_of("fedavg", rounds=8, **EVERYONE)
    run = Far(config, tmp_path, tamper=leaving(lambda reply: [], (1, 2), *((round_, 4) for round_ in range(5))))
    (flag,) = summary_of(run, run.trained())["flags"]
    assert flag == "missing in more than a tenth of their rounds: client 4 in 5 of 8 and client 2 in 1 of 8"


def test_a_run_in_which_everyone_answers_has_no_flag(tmp_path):
    run = Far(config_of("fedavg", rounds=2, **EVERYONE), tmp_path)
    far = run.trained()
    assert summary_of(run, far)["flags"] == []
    assert all(row["contributors"] == row["clients"] for row in far.history)


def test_a_client_that_is_refused_late_or_lost_has_an_event(tmp_path):
    config = config_of("fedavg", rounds=1, **EVERYONE)

    def tamper(request, reply):
        changes = {0: [], 1: [replace(reply, tensors={})], 2: [replace(reply, node=None, error="node is gone")]}
        return changes.get(request.facts.get("client"), [reply]) if request.kind == "train" else [reply]

    run = Far(config, tmp_path, Deployment(round_seconds=0.05, quorum=0.2), tamper=tamper)
    setup = run.setup()
    run.transport.offline.add(103)
    setup.engine.train(setup.start, Cohort(setup.planner, 0, tuple(range(5))), MemoryStore(), 0.1, lambda _: None)
    kinds = {event["client"]: event["event"] for event in run.events}
    assert kinds == {0: "late", 1: "refused reply", 2: "lost", 3: "no node"}


def test_the_journal_has_the_length_of_each_update_in_the_unit_of_max_norm(tmp_path):
    config = config_of("fedavg", rounds=1, **EVERYONE)
    lengths = {}

    def tamper(request, reply):
        if request.kind == "train":
            model = {name: leaf for name, leaf in request.tensors.items() if name.startswith("params/")}
            delta = {name: leaf for name, leaf in reply.tensors.items() if name.startswith("sums/delta/")}
            weight = float(reply.tensors["sums/weight/weight"])
            unit = max(1.0, float(tree_norm(model))) * max(1.0, weight)
            lengths[str(request.facts["client"])] = float(tree_norm(delta)) / unit
        return [reply]

    run = Far(config, tmp_path / "free", tamper=tamper)
    run.trained()
    (event,) = run.updates
    assert (event["event"], event["round"], event["kind"]) == ("updates", 1, "train")
    assert event["lengths"] == pytest.approx(lengths, rel=1e-3)
    # The setting that the journal suggests admits the longest update and nothing longer.
    longest = max(event["lengths"].values())
    for max_norm, refused in ((longest * 1.001, 0), (longest * 0.999, 1)):
        terms = Deployment(round_seconds=0.05, quorum=0.2, max_norm=max_norm)
        run = Far(config, tmp_path / str(refused), terms)
        run.trained()
        assert len(run.refused()) == refused


def test_methods_that_send_no_model_have_no_lengths(tmp_path):
    run = Far(config_of("local_ce", rounds=1, **EVERYONE), tmp_path)
    run.trained()
    assert run.updates == []


def test_accuracies_of_nodes_are_marked_as_claims(tmp_path):
    parts = [ward(k) for k in range(3)]
    files = saved(tmp_path / "data", parts)
    config = config_of("fedavg", rounds=1, **CHANGES)
    run = apart(tmp_path / "nodes", files, config=config)
    far = run.trained()
    assert far.history[0]["claimed"] == ["global"]
    assert summary_of(run, far)["claimed"] == ["global"]
    run = apart(tmp_path / "server", files, config=config, test=files[0])
    far = run.trained()
    assert "claimed" not in far.history[0]
    assert "claimed" not in summary_of(run, far)
    personal = config_of("fedper", rounds=1, **CHANGES, **{"evaluation.protocol": "ft"})
    run = apart(tmp_path / "personal", files, config=personal, test=files[0])
    far = run.trained()
    assert far.history[0]["claimed"] == ["personal"]
    assert summary_of(run, far)["claimed"] == ["personal"]
    assert "claimed" not in alone(config_of("fedper", rounds=1)).history[0]


@pytest.mark.parametrize(
    ("samples", "named"),
    [({0: 10, 1: 10, 2: 900}, True), ({0: 10, 1: 10, 2: 15}, False), ({0: 1, 1: 900}, False), ({}, False)],
)
def test_a_client_that_decides_the_claimed_accuracy_alone_is_named(samples, named):
    flags = Claims(frozenset({"global"}), lambda: samples).flags()
    assert [("mostly that of client 2, which declares 900 of 920 test samples" in flag) for flag in flags] == [
        True
    ] * named
    assert Claims(frozenset({"personal"}), lambda: samples).flags() == []


def test_a_node_cannot_measure_on_more_samples_than_it_declared(tmp_path):
    """All right on 9·10⁸ samples: the honest nodes would not count any more."""
    files = saved(tmp_path / "data", [ward(k) for k in range(3)])
    config = config_of("fedavg", rounds=1, **CHANGES)

    def forged(request, reply):
        if request.kind != "measure" or request.facts["client"] != 0:
            return [reply]
        numbers = {"count": 9e8, "correct": 9e8, "loss": 1.0}
        tensors = {name: leaf * 0 + numbers[name.rpartition("/")[2]] for name, leaf in reply.tensors.items()}
        return [replace(reply, tensors=tensors)]

    run = apart(tmp_path / "nodes", files, config=config)
    run.transport.tamper = forged
    (row,) = run.trained().history
    (event,) = run.refused()
    assert event["client"] == 0
    assert "counts 900000000 samples; the client has 40 to measure on" in event["reason"]
    assert row["test_accuracy"] < 99


def test_personal_models_are_measured_on_as_many_samples_as_there_are(tmp_path):
    config = config_of("fedper", rounds=1, **{"evaluation.protocol": "ft", "dataset.test_split": "holdout"})

    def forged(request, reply):
        if request.kind != "measure" or request.facts["client"] != 1:
            return [reply]
        return [replace(reply, tensors={name: leaf * 1000 for name, leaf in reply.tensors.items()})]

    run = Far(config, tmp_path, tamper=forged)
    run.trained()
    assert {event["client"] for event in run.refused()} == {1}
    assert all("to measure on" in event["reason"] for event in run.refused())


@pytest.mark.parametrize(
    ("method", "knobs", "name", "change"),
    [
        ("fednova", {}, "sums/steps/", lambda leaf: leaf * 100),
        ("fednova", {}, "sums/step_range/most", lambda leaf: leaf + 1),
        ("fednova", {"optimizer.momentum": 0.9}, "sums/steps/", lambda leaf: leaf * 1.001),
        ("fedexp", {}, "sums/squared_norm/", lambda leaf: leaf * 100),
        ("fedexp", {"method.rule": "released"}, "sums/norm/clients", lambda leaf: leaf * 0.01),
        ("fedgen", {}, "sums/heads/weight", lambda leaf: leaf + 0.1),
        ("fedgen", {}, "sums/heads/counts", lambda leaf: leaf * 10),
    ],
)
def test_sums_that_follow_from_the_plan_are_checked_exactly(method, knobs, name, change, tmp_path):
    config = config_of(method, rounds=1, **EVERYONE, **knobs)

    def tamper(request, reply):
        if request.kind != "train" or request.facts["client"] != 4:
            return [reply]
        assert any(key.startswith(name) for key in reply.tensors)
        tensors = {key: change(leaf) if key.startswith(name) else leaf for key, leaf in reply.tensors.items()}
        return [replace(reply, tensors=tensors)]

    run = Far(config, tmp_path, tamper=tamper)
    assert digest(run.trained()) == digest(alone(config, {0: {4}}))
    (event,) = run.refused()
    assert event["client"] == 4
    assert "the client's plan and its other sums give" in event["reason"]
