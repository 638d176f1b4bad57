"""A deployed run that goes back to a round: nodes find the states that clients had then, and keep those of the run."""

import shutil

import pytest

from fedblade.core.tree import tree_digest
from fedblade.flower._server import deployed_setup
from fedblade.results import RunDirectory
from fedblade.runs import RunJob, RunRequest, chosen_folder
from support.node_runs import EVERYONE, QUICK, Far, config_of

OFTEN = {"rounds": 6, "checkpoint.every": 2, "checkpoint.keep": 3, **EVERYONE}


def trained(config, out, *, resume=False):
    """Train in the run folder `out` with the nodes whose folders are beside it, and return the result."""
    far = Far(config, out.parent)
    job = RunJob(
        config,
        out,
        resume=resume,
        make_setup=lambda: deployed_setup(config, QUICK, far.transport, out, far.events.append),
    )
    return job.execute()


def go_back(config, out, round_):
    return chosen_folder(RunRequest(out=out, resume=True, from_round=round_), config)


def model_of(result):
    return tree_digest(dict(result.model.state_dict()))


@pytest.mark.parametrize("method", ["scaffold", "ditto"])
def test_the_result_is_that_of_the_undisturbed_run(method, tmp_path):
    config = config_of(method, **OFTEN)
    whole = trained(config, tmp_path / "run")
    out = go_back(config, tmp_path / "run", 2)
    again = trained(config, out, resume=True)
    assert model_of(again) == model_of(whole)
    assert not any("count_lost_states" in row for row in again.history)
    assert len(again.history) == 6


def test_the_run_itself_can_still_go_on(tmp_path):
    """Each of the runs has states of its own on the nodes, whatever the others do."""
    config, longer = (config_of("scaffold", **OFTEN | {"rounds": rounds}) for rounds in (6, 8))
    expected = model_of(trained(longer, tmp_path / "whole" / "run"))
    trained(config, tmp_path / "run")
    first = go_back(config, tmp_path / "run", 4)
    trained(longer, first, resume=True)
    second = go_back(longer, first, 6)
    for out in (tmp_path / "run", second, first):
        result = trained(longer, out, resume=True)
        assert model_of(result) == expected, out
        assert not any("count_lost_states" in row for row in result.history)


def test_a_node_that_lost_its_folder_is_counted(tmp_path):
    config = config_of("scaffold", **OFTEN)
    trained(config, tmp_path / "run")
    out = go_back(config, tmp_path / "run", 2)
    shutil.rmtree(tmp_path / "node3")
    again = trained(config, out, resume=True)
    assert [row.get("count_lost_states", 0) for row in again.history] == [0, 0, 1, 0, 0, 0]


def test_every_run_has_a_name_of_its_own(tmp_path):
    config = config_of("scaffold", **OFTEN)
    trained(config, tmp_path / "run")
    first = go_back(config, tmp_path / "run", 2)
    second = go_back(config, first, 2)
    stored = [RunDirectory(out).read_json("deployment.json") for out in (tmp_path / "run", first, second)]
    tokens = [each["token"] for each in stored]
    assert len(set(tokens)) == 3
    assert stored[1]["earlier"] == [[tokens[0], 2]]
    assert stored[2]["earlier"] == [[tokens[1], 2], [tokens[0], 2]]
