"""A reply that was taken before its node was revoked does not count in the round."""

import pytest

from support.node_runs import EVERYONE, QUICK, Far, alone, config_of, digest, trained


def revoking(config, folder, *, client, at, order="fixed", arrive=list):
    """A run in whose first round the node of a client is revoked while another client (`at`) answers."""
    admissions = {100 + k: {k} for k in range(5)}
    deployment = QUICK.model_copy(update={"order": order})
    run = Far(config, folder, deployment, order=arrive, admitted=lambda node: admissions.get(node, ()))

    def tamper(request, reply):
        if request.kind == "train" and request.facts["client"] == at:
            admissions[100 + client] = set()
        return [reply]

    run.transport.tamper = tamper
    return run


@pytest.mark.parametrize("order", ["fixed", "arrival"])
@pytest.mark.parametrize("method", ["scaffold", "fedblade"])
def test_a_reply_in_the_sum_is_taken_back_and_the_others_are_repeated(tmp_path, method, order):
    config = config_of(method, rounds=3, **EVERYONE)
    run = revoking(config, tmp_path, client=1, at=3, order=order)
    far = run.trained()
    assert [row["contributors"] for row in far.history] == [[0, 2, 3, 4]] * 3
    assert [row["count_refused_replies"] for row in far.history if "count_refused_replies" in row] == [1]
    assert digest(far) == digest(alone(config, {round_: {1} for round_ in range(3)}))
    (refused,) = run.refused()
    assert (refused["client"], refused["node"], refused["round"]) == (1, "101", 1)
    assert refused["reason"] == "its node is no longer admitted"
    asked = [(r.facts["client"], r.facts["attempt"]) for r in run.transport.asked if r.kind == "train"][:9]
    assert asked == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (2, 1), (3, 1), (4, 1)]
    assert set(run.updates[0]["lengths"]) == {"0", "2", "3", "4"}


def test_a_reply_that_waits_for_others_is_taken_back_alone(tmp_path):
    """Client 0 does not answer, so that all other replies wait on disk, and nobody is asked again."""
    config = config_of("scaffold", rounds=2, **EVERYONE)
    run = revoking(config, tmp_path, client=1, at=3)
    setup = run.setup()
    run.transport.offline.add(100)
    far = trained(setup)
    assert [row["contributors"] for row in far.history] == [[2, 3, 4]] * 2
    assert digest(far) == digest(alone(config, {0: {0, 1}, 1: {0, 1}}))
    assert [r.facts["client"] for r in run.transport.asked if r.kind == "train"] == [1, 2, 3, 4, 2, 3, 4]


def test_a_reply_that_is_read_after_the_revocation_is_refused(tmp_path):
    config = config_of("fedavg", rounds=2, **EVERYONE)
    run = revoking(config, tmp_path, client=3, at=1)
    far = run.trained()
    assert digest(far) == digest(alone(config, {0: {3}, 1: {3}}))
    assert [event["reason"] for event in run.refused()] == ["its node is no longer admitted"]
    assert len([r for r in run.transport.asked if r.kind == "train" and r.facts["round"] == 0]) == 5


def test_the_last_attempt_of_a_round_is_repeated_too(tmp_path):
    config = config_of("fedavg", rounds=1, **EVERYONE)
    run = revoking(config, tmp_path, client=0, at=4)
    run.deployment = run.deployment.model_copy(update={"attempts": 1})
    assert digest(run.trained()) == digest(alone(config, {0: {0}}))
