"""Nodes of another release: with the same protocol they take part, with another protocol both sides say so."""

import pytest

from fedblade import __version__
from fedblade.core.errors import RunFailed
from support.node_runs import EVERYONE, Far, alone, config_of, digest, nodes
from support.other_release import OtherRelease


@pytest.fixture
def other_release(tmp_path):
    """Makes the node of client 2 with another release."""
    made = []

    def make(version, protocol):
        made.append(OtherRelease(tmp_path / "other", 2, version, protocol))
        return made[-1]

    yield make
    for node in made:
        node.stop()


def test_a_node_of_another_release_with_the_same_protocol_takes_part(other_release, tmp_path):
    config = config_of("scaffold", **EVERYONE)
    assert __version__ != "9.8.7"
    run = Far(config, tmp_path, there=nodes(tmp_path) | {102: other_release("9.8.7", 1)})
    assert digest(run.trained()) == digest(alone(config))
    assert run.events == []


def test_another_protocol_is_refused_and_both_sides_name_both_numbers(other_release, tmp_path, caplog):
    node = other_release("9.8.7", 2)
    run = Far(config_of("fedavg", rounds=1), tmp_path, there=nodes(tmp_path) | {102: node})
    here = f"protocol 1 (fedblade '{__version__}')"
    with pytest.raises(RunFailed) as failed:
        run.setup()
    reason = f"it speaks protocol 2 (fedblade '9.8.7'), the coordinator {here}"
    assert f"Node 102 was refused: {reason}." in str(failed.value)
    assert [(event["event"], event["node"], event["reason"]) for event in run.events] == [
        ("refused node", "102", reason)
    ]
    assert reason in caplog.text
    assert f"the coordinator speaks {here}, this node protocol 2 (fedblade '9.8.7'). Install a release" in node.log
