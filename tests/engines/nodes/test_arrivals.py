"""Replies are added one by one: in the order of the clients' ids, for which some wait on disk, or as they arrive."""

import weakref
from dataclasses import replace

import pytest
import torch

from fedblade.engines.nodes import _arrivals, _cohort_query
from support.node_runs import EVERYONE, QUICK, Far, alone, config_of, digest


def test_by_arrival_sums_agree_to_rounding(tmp_path):
    config = config_of("scaffold", dtype="float64", **EVERYONE)
    deployment = QUICK.model_copy(update={"order": "arrival"})
    far = Far(config, tmp_path, deployment, order=lambda ids: ids[::-1]).trained()
    near = alone(config).state.flat()
    for name, leaf in far.state.flat().items():
        torch.testing.assert_close(leaf, near[name], rtol=0, atol=1e-12)
    assert not (tmp_path / "run" / "checkpoints" / "waiting").exists()


def test_by_arrival_rows_that_are_kept_apart_ascend_by_client(tmp_path):
    config = config_of("fedgen", dtype="float64", **EVERYONE)
    deployment = QUICK.model_copy(update={"order": "arrival"})
    far = Far(config, tmp_path, deployment, order=lambda ids: ids[::-1]).trained()
    near = alone(config).state.flat()
    for name, leaf in far.state.flat().items():
        torch.testing.assert_close(leaf, near[name], rtol=0, atol=1e-12)


def test_early_replies_wait_on_disk_and_leave_nothing(tmp_path, monkeypatch):
    config = config_of("fedavg", rounds=1, **EVERYONE)
    folder = tmp_path / "run" / "checkpoints" / "waiting"
    folder.mkdir(parents=True)
    (folder / "0.safetensors").write_bytes(b"of a process that was killed")
    seen = []
    put = _arrivals.Arrivals.put

    def watched(self, client, tensors, facts):
        put(self, client, tensors, facts)
        seen.append(sorted(path.name for path in folder.glob("*")))

    monkeypatch.setattr(_arrivals.Arrivals, "put", watched)
    far = Far(config, tmp_path, order=lambda ids: ids[::-1]).trained()
    waiting = [f"{client}.safetensors" for client in (1, 2, 3, 4)]
    assert seen == [waiting[3:], waiting[2:], waiting[1:], waiting, []]
    assert not folder.exists()
    assert digest(far) == digest(alone(config))


@pytest.mark.parametrize("arranged", [list, lambda ids: ids[::-1]])
def test_memory_holds_few_replies_whatever_the_cohort(arranged, tmp_path, monkeypatch):
    config = config_of("fedavg", rounds=1, **{"num_clients": 12, "clients_per_round": 12, "evaluation.metrics": []})
    replies, outcomes, most = [], [], {"replies": 0, "outcomes": 0}

    class Watched(dict):
        """Tensors that can be counted."""

    def tamper(request, reply):
        if request.kind != "train":
            return [reply]
        found = replace(reply, tensors=Watched(reply.tensors))
        replies.append(weakref.ref(found.tensors))
        return [found]

    unpack = _cohort_query.unpack

    def counted(*given):
        outcome = unpack(*given)
        outcomes.append(weakref.ref(outcome))
        for name, made in (("replies", replies), ("outcomes", outcomes)):
            most[name] = max(most[name], sum(each() is not None for each in made))
        return outcome

    monkeypatch.setattr(_cohort_query, "unpack", counted)
    Far(config, tmp_path, tamper=tamper, order=arranged).trained()
    # The one that is added, and the one before it, whose name is still bound.
    assert most["replies"] <= 2
    assert most["outcomes"] == 1
