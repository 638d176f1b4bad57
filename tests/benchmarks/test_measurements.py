"""Each benchmark on a tiny setting: every case is measured, and the numbers are those of the sides."""

import contextlib
import math
import re
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from benchmarks.benchmark import Options
from benchmarks.busy import busy_process
from benchmarks.fresh_process import CHECKOUT
from benchmarks.timing import alternate, paired_ratios
from benchmarks.workloads import (
    cifar,
    digits,
    estimate,
    float32,
    frameworks,
    growth,
    jobs,
    lddecorr,
    losses,
    memory,
    metrics,
    state,
    tables,
)
from fedblade.losses import balanced_cross_entropy
from fedblade.losses import lddecorr as lddecorr_loss

ONCE = Options(repeat=1)


def results(measured):
    found = dict(measured)
    assert found
    return found


def assert_ratio(result, slow, fast):
    assert result.value == pytest.approx(result.medians[slow] / result.medians[fast])
    assert 0 < result.value < math.inf


def test_sides_take_turns():
    order = []

    def side(name, seconds):
        return lambda: order.append(name) or seconds

    found = alternate([side("a", 1.0), side("b", 4.0)], 3)
    assert "".join(order) == "ababab"
    assert found == [[1.0] * 3, [4.0] * 3]
    assert paired_ratios([6.0, 8.0], [2.0, 4.0]) == [3.0, 2.0]


def test_digits(tiny):
    found = results(digits.measure_digits(ONCE, tiny))
    assert found.keys() == {digits.SEQUENTIAL.label, digits.PLAIN.label}
    assert_ratio(found[digits.SEQUENTIAL.label], "sequential s/round", "stacked s/round")
    assert_ratio(found[digits.PLAIN.label], "plain loop s/round", "stacked s/round")


def test_quickstart():
    found = results(digits.measure_quickstart(ONCE, rounds=1, epochs=1, clients_per_round=2))
    assert found.keys() == {case.label for case in digits.QUICKSTART.values()}
    for result in found.values():
        assert_ratio(result, "sequential s/round", "stacked s/round")


@pytest.mark.thorough
def test_busy(tiny):
    ((label, result),) = digits.measure_busy(ONCE, tiny)
    assert label == digits.BUSY.label
    assert_ratio(result, "plain loop s/round", "stacked s/round")


def runs(process):
    """Whether a process is there and works."""
    status = Path(f"/proc/{process}/status")
    return status.is_file() and "zombie" not in status.read_text()


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="asks Linux which processes run")
def test_the_busy_process_ends_however_the_benchmark_ends():
    with contextlib.suppress(RuntimeError), busy_process() as process:
        assert runs(process)
        raise RuntimeError
    assert not runs(process)
    code = (
        "import benchmarks.busy as b, time\nwith b.busy_process() as p:\n    print(p, flush=True)\n    time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as benchmark:
        process = int(benchmark.stdout.readline())
        assert runs(process)
        benchmark.kill()
    began = time.monotonic()
    while runs(process):
        assert time.monotonic() - began < 30
        time.sleep(0.05)


def test_a_table_of_text_is_read():
    ((label, result),) = tables.measure(ONCE, rows=300)
    assert label == tables.CSV.label
    assert 0 < result.value < 60


@pytest.mark.thorough
def test_estimate():
    setting = {"one": {"method": "fedavg", "rounds": 2, "model": "mlp"}}
    ((label, result),) = estimate.measure(ONCE, setting)
    assert label == estimate.WORST.label
    assert result.medians.keys() == {"one estimated s", "one s"}
    estimated, measured = result.medians["one estimated s"], result.medians["one s"]
    assert result.value == pytest.approx(max(estimated / measured, measured / estimated))


def test_the_estimate_of_the_worst_setting_counts(monkeypatch):
    answers = {("estimate", "a"): 8.0, ("run", "a"): 10.0, ("estimate", "b"): 11.0, ("run", "b"): 10.0}
    monkeypatch.setattr(estimate, "seconds", lambda side, changes: answers[side, changes["method"]])
    ((_, result),) = estimate.measure(ONCE, {"a": {"method": "a"}, "b": {"method": "b"}})
    assert result.value == 1.25


@pytest.mark.thorough
def test_state(monkeypatch):
    monkeypatch.setattr(state, "METHODS", {"ditto": "Ditto"})
    found = results(state.measure(ONCE, rounds=2, settings={"cpu": {**state.SMALL, "epochs": 1}}))
    result = found["Ditto over FedAvg, cpu"]
    assert result.value == pytest.approx(result.medians["Ditto s/round"] / result.medians["FedAvg s/round"] / 2)


def test_state_on_a_gpu_is_the_setting_of_cifar(monkeypatch, any_device):
    monkeypatch.setattr(state, "status", lambda _: Namespace(state="ready"))
    monkeypatch.setattr(state, "timed", lambda rounds, *_: timed(9, *range(2, rounds + 1)))
    found = results(state.measure(any_device, rounds=3, settings={"cuda": {}}))
    cases = {case.label: case for case in state.BENCHMARKS[0].cases}
    assert {label: result.value for label, result in found.items()} == {
        "SCAFFOLD over FedAvg, cuda": 1, "FedDyn over FedAvg, cuda": 1, "FedGELA over FedAvg, cuda": 1,
        "Ditto over FedAvg, cuda": 0.5,
    }  # fmt: skip
    assert {str(cases[label].goal) for label in found} == {"≤ 1.25"}


def test_float32(monkeypatch, tiny):
    monkeypatch.setattr(float32, "_RUNS", {"fedblade, one round": ("fedblade", tiny, float32.ROUND_BOUND)})
    (result,) = results(float32.measure(ONCE)).values()
    assert 0 < result.value <= float32.ROUND_BOUND


def test_a_difference_is_relative_and_leaves_counters_out():
    expected = {"a": torch.tensor([1.0, -3.0]), "n": torch.tensor([7])}
    found = {"a": torch.tensor([1.5, -3.4]), "n": torch.tensor([9])}
    assert float32.difference(found, expected) == pytest.approx(0.25)
    assert float32.difference({}, {}) == 0


def test_lddecorr():
    found = results(lddecorr.measure(Options(repeat=1, device="cpu"), sizes=((64, 512),)))
    label = "lddecorr 64×512, cpu"
    assert_ratio(found[label], "paper ms", "ours ms")
    assert found[f"{label}, gradient"].value < 1e-5 < found[label].medians["paper error"]
    assert found["lddecorr 64×1280, cuda"] == "needs a GPU; --device cpu was asked for"


def test_the_papers_arithmetic_is_that_of_the_library():
    z = torch.randn(16, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for ours, paper in lddecorr.PAIRS.values():
        torch.testing.assert_close(ours(z), paper(z))


def test_losses():
    found = results(losses.measure(Options(repeat=1, device="cpu"), batch=8))
    assert list(found) == [case.label for case in losses.BENCHMARKS[0].cases]
    for result in found.values():
        assert list(result.medians) == ["L_sup ms", "L_FA ms", "L_PA ms", "L_LDDecorr ms"]
        assert result.value == pytest.approx(sum(result.medians.values()))


def test_terms_are_the_losses_at_given_points():
    sides = losses.terms(8, 16, 4, "cpu")
    logits = sides["L_sup"][1]
    labels = torch.arange(8) % 4
    assert sides["L_sup"][0](logits) == balanced_cross_entropy(logits, labels, torch.full((4,), 2))
    assert sides["L_LDDecorr"][0](sides["L_LDDecorr"][1]) == lddecorr_loss(sides["L_FA"][1])
    for term, point in sides.values():
        leaf = point.clone().requires_grad_()
        term(leaf).backward()
        assert leaf.grad.abs().sum() > 0


@pytest.mark.thorough
def test_memory():
    found = results(memory.measure(ONCE, many=2000, few=20, per_round=3, rounds=2))
    result = found[memory.MANY.label]
    assert_ratio(result, "2000 MiB", "20 MiB")
    assert 50 < result.medians["20 MiB"] < 20_000
    assert "s per round" in result.note


@pytest.mark.thorough
def test_jobs():
    small = ("rounds=1", "epochs=1", "model=mlp", "metrics=accuracy", "clients_per_round=2")
    changes = ["--seeds", "1", *(part for setting in small for part in ("--set", setting))]
    result = results(jobs.measure(ONCE, changes))[jobs.TWO_JOBS.label]
    assert_ratio(result, "one after another s", "two jobs s")
    first, second = re.findall(r"\d+\.\d+", result.note)
    assert first == second


CPU = {
    "dataset": "digits", "dataset.augment": "none", "model": "mlp", "model.dim": 8,
    "partition": "iid", "num_clients": 4, "clients_per_round": 2, "epochs": 1, "device": "cpu",
}  # fmt: skip


def timed(*seconds):
    """What a process reports of rounds that took so long, with a second of evaluation each."""
    return {"first": 20.0, "later": [each + 1 for each in seconds[1:]], "seconds": list(seconds), "peak_gib": 7.5}


def test_rounds_of_cifar_are_compared_one_by_one():
    sides = {"fedblade": timed(9, 2, 3, 4), "fedetf": timed(8, 1, 2), "bf16": timed(9, 1, 1.5, 2)}
    sides["client-wise"] = timed(9, 3, 5)
    found = dict(cifar.seconds_per_round(sides))
    assert found[cifar.TF32.label].value == 3
    assert found[cifar.BF16.label].value == 1.5
    assert found[cifar.FEDETF.label].values == [2.0, 1.5]
    assert found[cifar.CLIENTS.label].value == 4
    assert found[cifar.FIRST.label].value == 20
    assert found[cifar.TF32.label].medians == {"s/round": 3, "peak GiB": 7.5}
    both = cifar.compare_engines(sides["fedblade"], timed(90, 20, 60))
    assert both.values == [10.0, 20.0]
    assert both.value == 15.0
    measured = cifar.compare_metrics(sides["fedblade"], timed(9, 2.75, 5))
    assert measured.values == [1.25, 1.5]
    assert measured.value == 1.375
    assert measured.medians == {"accuracy s/round": 3.5, "default s/round": 4.875}


@pytest.mark.slow
def test_cifar(any_device):
    found = results(cifar.measure(any_device, rounds=2, few=2, sequential=2, **CPU))
    assert found.keys() == {case.label for case in cifar.CASES}
    assert_ratio(found[cifar.ENGINES.label], "sequential s/round", "stacked s/round")
    assert_ratio(found[cifar.FEDETF.label], "fedblade s/round", "fedetf s/round")
    assert_ratio(found[cifar.METRICS.label], "default s/round", "accuracy s/round")


@pytest.mark.thorough
def test_a_whole_run_and_another_model(any_device):
    whole = results(cifar.measure_whole(any_device, rounds=3, **CPU))[cifar.WHOLE.label]
    assert whole.value >= whole.medians["first round s"] + whole.medians["s/round with evaluation"]
    assert "peak GiB" not in whole.medians, "there is no GPU to ask"
    both = results(cifar.measure_resnet18(any_device, rounds=2, **CPU | {"model": "mlp"}))
    assert_ratio(both[cifar.RESNET18.label], "sequential s/round", "stacked s/round")


def test_cifar_is_the_setting_of_the_paper():
    config = cifar.setting(3, "fedblade", "stacked", "class-wise", {})
    table = config.table()
    partition = (table["partition"]["name"], table["partition"]["alpha"])
    assert (table["model"]["name"], table["dataset"]["name"], *partition) == (
        "mobilenet_v2", "cifar10", "dirichlet", 0.05,
    )  # fmt: skip
    federation, local = table["federation"], table["local"]
    assert (federation["num_clients"], federation["clients_per_round"], federation["rounds"]) == (100, 20, 3)
    assert (local["epochs"], local["batch_size"]) == (5, 64)
    assert (table["evaluation"]["every"], table["engine"], table["tf32"]) == (3, "stacked", True)
    other = cifar.setting(3, "fedetf", "stacked", "client-wise", {})
    assert (other.method.name, other.general.seed) == ("fedetf", config.general.seed)
    assert other.partition.name == "dirichlet_clients"


@pytest.mark.parametrize(
    "benchmark",
    [
        *digits.BENCHMARKS,
        *frameworks.BENCHMARKS,
        *memory.BENCHMARKS,
        *jobs.BENCHMARKS,
        *estimate.BENCHMARKS,
        *tables.BENCHMARKS,
    ],
)
def test_what_is_measured_on_the_cpu_is_skipped_where_a_gpu_is_asked_for(benchmark):
    for row in benchmark.run(Options(device="cuda")):
        assert row.as_dict()["skipped"] == "is measured on the CPU; --device cuda was asked for"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_missing_is_named():
    for benchmark in cifar.BENCHMARKS:
        for row in benchmark.run(Options()):
            assert row.as_dict()["skipped"] == "needs a GPU; torch sees no CUDA device here"


def test_data_that_are_missing_are_named(any_device, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = [row.as_dict() for benchmark in cifar.BENCHMARKS for row in benchmark.run(any_device)]
    rows += [{"skipped": reason} for _, reason in state.measure(any_device, settings={"cuda": {}})]
    for row in rows:
        assert "needs CIFAR-10" in row["skipped"]
        assert "fedblade data cifar10" in row["skipped"]


def test_growth_of_diagnostics():
    """Sizes are small; above 200 classes tables are pooled."""
    small = {"samples": 300}
    assert_ratio(growth.diagnostics.measure_classes(ONCE, 210, 5, **small), "210 s", "5 s")
    assert_ratio(growth.diagnostics.measure_features(ONCE, 16, 8, **small), "16 s", "8 s")
    assert 0.01 < growth.diagnostics.measure_file(ONCE, 210, **small).value < 0.2
    assert growth.diagnostics.measure_memory(ONCE, 20, rounds=5, **small).value < 0.05
    assert {row.case.label for row in growth.diagnostics.ROWS} <= {row.case.label for row in growth.ROWS}


def test_metrics():
    """The default metrics are measured for the method with the longest rounds and for the one with the shortest."""
    found = results(metrics.measure(ONCE, rounds=1, epochs=1, clients_per_round=2))
    assert found.keys() == {case.label for case in metrics.BENCHMARKS[0].cases}
    for case in (metrics.DEFAULT, metrics.PLAIN):
        assert str(case.goal) == "≤ 1.1"
        assert_ratio(found[case.label], "default s/round", "accuracy s/round")
    assert "FedAvg" in metrics.PLAIN.what


def test_the_share_of_a_first_run_that_is_training():
    small = {"dataset": "digits", "epochs": 1, "model": "mlp"}
    found = results(metrics.measure_first_run(ONCE, rounds=2, **small))[metrics.FIRST_RUN.label]
    assert 0 < found.value < 1
    assert found.value == found.medians["training s"] / found.medians["all rounds s"]
