"""Runs and refusals in processes that stay: all ranks see the same, and an error leaves them able to go on."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough
ALONE = ("memory", "rank store", "own data", "after all that", "frozen")
SCRIPT = Path(__file__).parents[2] / "support" / "rank_runs.py"


@pytest.fixture(scope="module")
def seen(tmp_path_factory, launcher):
    """What two ranks saw."""
    folder = tmp_path_factory.mktemp("many")
    launcher(folder)(2, SCRIPT, folder).done()
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    "case",
    [
        "memory",
        "rank store",
        "finished",
        "stacked",
        "by name",
        "own data",
        "after all that",
        "frozen",
        "frozen, stacked",
        "chosen",
        "chosen, rank store",
        "unseen",
    ],
)
def test_every_rank_gets_the_same_result(seen, case):
    first, second = (each[case] for each in seen)
    assert first == second
    assert first["summary"]["status"] == "finished"


@pytest.mark.parametrize("case", [*ALONE, "chosen", "chosen, rank store", "unseen"])
def test_it_is_that_of_one_process(seen, case):
    alone = seen[0]["alone"][case]
    assert {key: seen[0][case][key] for key in alone} == alone


def test_every_rank_predicts_the_labels_of_the_user(seen):
    for rank in seen:
        assert set(rank["own data"]["labels"]) <= {10, 20, 30, 40, 50}
        assert len(set(rank["own data"]["labels"])) > 1


def test_own_models_of_clients_elsewhere_are_measured(seen):
    assert len(seen[0]["rank store"]["clients"]) == 6
    assert len(seen[0]["memory"]["clients"]) == 6


def test_a_finished_run_is_only_read(seen):
    assert seen[0]["finished"] == seen[0]["rank store"]


def test_each_rank_may_be_stacked(seen):
    found, alone = (each["history"] for each in (seen[0]["stacked"], seen[0]["alone"]["stacked"]))
    for mine, theirs in zip(found, alone, strict=True):
        assert mine["test_accuracy"] == pytest.approx(theirs["test_accuracy"])
        assert mine["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-9)
    assert seen[0]["stacked"]["summary"]["engine"] == "stacked"


def test_engine_distributed_is_the_best_that_each_rank_has(seen):
    assert seen[0]["by name"]["summary"]["engine"] == "stacked"
    assert seen[0]["by name"]["model"] == seen[0]["stacked"]["model"]


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        ("non-finite", "NonFinite", ["non-finite", "client"]),
        ("nobody trains", "RunFailed", ["no client made a step in any of the 2 rounds", "local.last_batch=keep"]),
        ("other revision", "Misconfigured", ["local loop of revision 99", "Choose another --out"]),
        ("stacked fixed", "Unsupported", ["engine=sequential", "distributed.order=any"]),
        ("not shared", "Misconfigured", ["rank 1", "distributed.store=rank"]),
        ("other weights", "Misconfigured", ["rank 1", "another initial state"]),
        ("other data", "Misconfigured", ["rank 1", "another data set"]),
        ("other settings", "Misconfigured", ["rank 1", "optimizer.lr = 0.2 (rank 0: 0.1)"]),
        ("without ranks", "Unsupported", ["compare, sweep, reproduce", "without torchrun"]),
    ],
)
def test_errors_are_raised_on_all_ranks(seen, case, kind, words):
    for rank in seen:
        assert rank[case].startswith(f"{kind}: "), rank[case]
        assert all(word in rank[case] for word in words), rank[case]


def test_a_failed_run_is_recorded(seen):
    assert seen[0]["broken status"] == "failed"
    assert seen[0]["idle status"] == "failed"
