"""Whole runs against other frameworks, and the plain loop they all train."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch

from benchmarks import plain_pytorch
from benchmarks.benchmark import Options
from benchmarks.fresh_process import CHECKOUT, measure_in_fresh_process
from benchmarks.workloads import frameworks
from benchmarks.workloads.frameworks import OURS
from fedblade.core.errors import RunFailed
from fedblade.runs import prepare


def installed(*packages):
    return all(importlib.util.find_spec(package) is not None for package in packages)


@pytest.mark.thorough
def test_a_whole_run_is_timed_in_a_process_of_its_own(tiny, tmp_path):
    found = measure_in_fresh_process(OURS, folder=tiny.write(tmp_path))
    assert len(found["round_seconds"]) == tiny.rounds
    assert found["seconds"] >= sum(found["round_seconds"]) > 0
    assert 0 <= found["accuracy"] <= 100


def test_a_process_that_fails_is_told_of_with_its_last_line(tmp_path):
    with pytest.raises(RunFailed, match=r"no_such_module ended with status 1: .*No module named no_such_module"):
        measure_in_fresh_process("no_such_module", folder=tmp_path)


def answers(monkeypatch, ours, theirs):
    """Runs that take no time: (seconds, accuracy) of each side."""

    def measure(program, **_):
        seconds, accuracy = ours if program == OURS else theirs
        return {"seconds": seconds, "accuracy": accuracy}

    monkeypatch.setattr(frameworks, "measure_in_fresh_process", measure)


def test_whole_runs_are_compared(monkeypatch, tiny):
    answers(monkeypatch, (2.0, 80.0), (30.0, 78.0))
    result = frameworks.against("other", "other.module", tiny, 2, ())
    assert (result.value, result.comparable) == (15.0, True)
    assert result.medians == {
        "fedblade s": 2.0, "other s": 30.0, "fedblade accuracy %": 80.0, "other accuracy %": 78.0,
    }  # fmt: skip
    assert result.note == ""


def test_runs_that_learned_differently_are_not_comparable(monkeypatch, tiny):
    answers(monkeypatch, (2.0, 80.0), (30.0, 60.0))
    result = frameworks.against("other", "other.module", tiny, 1, ())
    assert not result.comparable
    assert "cannot be compared" in result.note


@pytest.mark.parametrize(("benchmark", "package"), [*zip(frameworks.BENCHMARKS, ("flwr", "pfl"), strict=True)])
def test_a_missing_package_says_what_to_install(monkeypatch, benchmark, package):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    rows = [row.as_dict() for row in benchmark.run(Options())]
    assert len(rows) == len(benchmark.cases)
    for row in rows:
        assert package in row["skipped"]
        assert "pip install -e '.[bench]'" in row["skipped"]


@pytest.mark.slow
@pytest.mark.skipif(not installed("flwr", "ray"), reason="flwr with Ray is not installed: pip install -e '.[bench]'")
def test_flower(tiny):
    ((label, result),) = frameworks.measure_flower(Options(repeat=1), [tiny])
    assert label == "2 rounds × 1 epoch"
    assert result.medians["Flower s"] > 0


@pytest.mark.slow
@pytest.mark.skipif(not installed("pfl"), reason="pfl is not installed: pip install -e '.[bench]'")
def test_pfl(tiny):
    ((label, result),) = frameworks.measure_pfl(Options(repeat=1), [tiny])
    assert label == "2 rounds × 1 epoch"
    assert result.medians["pfl s"] > 0


def test_every_side_gets_the_same_clients(tiny, tmp_path):
    setup = prepare(tiny.config("stacked"))
    clients, (x_test, y_test) = plain_pytorch.read_data(tiny.write(tmp_path))
    assert len(clients) == tiny.clients
    for client, (x, y) in enumerate(clients):
        inputs, labels = setup.problem.samples.batch(torch.from_numpy(np.array(setup.clients.train.part(client))))
        torch.testing.assert_close((x, y), (inputs, labels), rtol=0, atol=0)
    assert len(x_test) == len(y_test) == len(setup.test_order)
    assert plain_pytorch.read_settings(tmp_path)["batch_size"] == tiny.batch_size


def test_the_plain_network_is_as_large_as_ours(tiny):
    ours = prepare(tiny.config("stacked")).start
    theirs = plain_pytorch.Net()
    assert sorted(tuple(leaf.shape) for leaf in ours.params.values()) == sorted(
        tuple(leaf.shape) for leaf in theirs.parameters()
    )


def test_state_dicts_are_averaged_by_samples():
    weights, counters = ([1.0, 2.0], [4.0, 8.0]), (3, 5)
    states = [{"w": torch.tensor(w), "n": torch.tensor(n)} for w, n in zip(weights, counters, strict=True)]
    found = plain_pytorch.average(states, [2, 1])
    torch.testing.assert_close(found["w"], torch.tensor([2.0, 4.0]))
    assert found["n"] == 3


def test_a_plain_round_moves_to_the_mean_of_its_clients(tiny, tmp_path):
    clients, test = plain_pytorch.read_data(tiny.write(tmp_path))
    work = plain_pytorch.read_settings(tmp_path)
    net, again = plain_pytorch.new_net(1), plain_pytorch.new_net(1)
    torch.testing.assert_close(net.state_dict(), again.state_dict(), rtol=0, atol=0)
    torch.manual_seed(3)
    plain_pytorch.federated_round(net, clients[:1], work)
    torch.manual_seed(3)
    plain_pytorch.train(again, clients[0], work)
    torch.testing.assert_close(net.state_dict(), again.state_dict())
    assert 0 <= plain_pytorch.accuracy(net, test) <= 100


def test_worker_processes_import_nothing_of_the_library():
    code = "import sys, benchmarks.plain_pytorch; print(*[name for name in sys.modules if name.startswith('fedblade')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert not done.stdout.split()
