"""How many runs are trained at a time, with which threads and on which devices; and what the display says of them."""

from contextlib import ExitStack, nullcontext
from io import StringIO

import pytest
import torch
from rich.console import Console

from fedblade.core.errors import Misconfigured
from fedblade.core.listener import RunListener, RunOverview
from fedblade.runs import load_config
from fedblade.studies import Estimate, PlannedRun, _jobs, plan_jobs, run_side_by_side, study_display
from fedblade.studies._jobs import Jobs, jobs_in_memory, worker_environment
from fedblade.studies._study_display import StudyProgress

GIB = 2**30


@pytest.fixture
def machine(monkeypatch):
    """A machine with so many cores and so much free memory, and torch as it would come up there."""

    def make(cores=8, free=64 * GIB):
        monkeypatch.setattr(_jobs, "cores", lambda: cores)
        monkeypatch.setattr(_jobs, "free_memory", lambda: free)
        monkeypatch.setattr(torch, "get_num_threads", lambda: cores)

    make()
    return make


@pytest.fixture
def runs(tmp_path):
    """Planned runs of the quickstart, one per seed."""

    def make(count, **changes):
        seeds = range(1, count + 1)
        configs = [load_config(None, {"method": "fedavg", "seed": seed, **changes})[0] for seed in seeds]
        return [
            PlannedRun(f"seed {seed}", tmp_path / str(seed), config)
            for seed, config in zip(seeds, configs, strict=True)
        ]

    return make


def test_cores_are_divided_among_runs(machine, runs):
    assert plan_jobs("auto", "", runs(12)) == Jobs(8, 1, chosen=True)
    assert plan_jobs("auto", "", runs(3)) == Jobs(3, 2, chosen=True)
    assert plan_jobs("2", "", runs(12)) == Jobs(2, 4)
    assert plan_jobs("20", "", runs(3)) == Jobs(3, 2)
    assert plan_jobs("1", "", runs(12)).in_this_process


def test_a_run_that_is_named_twice_counts_once(machine, runs):
    assert plan_jobs("auto", "", runs(1) * 3).in_this_process


def test_auto_leaves_short_studies_and_small_memory_alone(machine, runs):
    assert plan_jobs("auto", "", runs(2, rounds=2)).in_this_process
    assert plan_jobs("2", "", runs(2, rounds=2)).count == 2
    machine(free=2 * GIB)
    assert plan_jobs("auto", "", runs(12)).count == 3
    machine(free=GIB // 4)
    assert plan_jobs("auto", "", runs(12)).in_this_process
    machine(free=None)
    assert plan_jobs("auto", "", runs(12)).count == 8


def test_data_of_unknown_size_are_no_short_study(machine, runs, tmp_path):
    assert plan_jobs("auto", "", runs(2, rounds=2, dataset="arrays", **{"dataset.path": str(tmp_path)})).count == 2


def test_as_many_runs_as_fit_beside_the_first_one(machine):
    jobs = Jobs(8, 1, chosen=True)
    machine(free=13 * GIB)
    assert jobs_in_memory(jobs, 5 * GIB) == 3
    machine(free=GIB)
    assert jobs_in_memory(jobs, 5 * GIB) == 1
    machine(free=None)
    assert jobs_in_memory(jobs, 5 * GIB) == 8


def test_devices_are_shared_in_turn(machine, runs):
    assert plan_jobs("auto", "cpu,cpu", runs(5)) == Jobs(2, 4, ("cpu", "cpu"), chosen=True)
    assert plan_jobs("3", "cpu,cpu", runs(5)).devices == ("cpu", "cpu", "cpu")
    assert not plan_jobs("auto", "cpu", runs(5)).in_this_process


@pytest.mark.parametrize(
    ("device", "visible", "expected"),
    [("cpu", None, ""), ("cuda:1", None, "1"), ("cuda", None, "0"), ("cuda:1", "5,GPU-7f", "GPU-7f"), (None, "3", "3")],
)
def test_a_worker_sees_its_device_only(monkeypatch, device, visible, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    environment = worker_environment(Jobs(2, 3), device)
    assert environment["CUDA_VISIBLE_DEVICES"] == expected
    assert environment["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("jobs", "devices", "changes", "words"),
    [
        ("0", "", {}, ["--jobs '0'", "auto"]),
        ("two", "", {}, ["--jobs 'two'", "1 or more"]),
        ("1", "cpu,cpu", {}, ["--jobs 1", "cpu,cpu", "idle"]),
        ("auto", "auto", {}, ["--devices auto", "cuda:0,cuda:1"]),
        ("auto", "tpu", {}, ["tpu"]),
        ("auto", "cuda:99", {}, ["cuda:99"]),
        ("auto", "cpu", {"device": "cuda:1"}, ["device = 'cuda:1'", "--devices cpu"]),
        ("auto", "cpu", {"device": "cuda"}, ["device = 'cuda'", "Leave one"]),
    ],
)
def test_mistakes(machine, runs, jobs, devices, changes, words):
    with pytest.raises(Misconfigured) as mistake:
        plan_jobs(jobs, devices, runs(2, **changes))
    assert [word for word in words if word not in str(mistake.value)] == []


def test_the_cost_is_divided_in_whole_runs():
    cost = Estimate(100, 600.0, exact=True, unknown=0, absent={}, runs=3)
    assert Jobs(1, 1).sentence(cost) == cost.sentence()
    assert Jobs(2, 1).sentence(cost).endswith("; about 6.7 minutes with 2 runs at a time")
    assert Jobs(8, 1).sentence(cost).endswith("; about 3.3 minutes with 3 runs at a time")


def test_the_time_left_counts_runs_side_by_side_and_divides_no_run():
    now = 0.0
    study = StudyProgress(4, clock=lambda: now)
    first, second = study.begin(0.0), study.begin(0.5)
    assert study.seconds_left() is None
    now, first.share, second.share = 10.0, 0.25, 0.75
    # A run takes 40 s. Two are in training with 0.75 and 0.25 left, two wait: 3 runs for two workers.
    assert study.seconds_left() == pytest.approx(60.0)
    now, first.share, second.share = 20.0, 0.5, 1.0
    second.ended = now
    third, fourth = study.begin(0.0), study.begin(0.0)
    assert study.num_ended == 1
    # The work of 2.5 runs for three workers takes 33 s, but each of the new runs takes 40 s alone.
    assert study.seconds_left() == pytest.approx(40.0)
    for run in (first, third, fourth):
        run.ended = now
    assert study.seconds_left() is None
    assert study.share == 4


def show(label, terminal):
    """What a console of 80 columns has shown of a run with one round more to do, and what it shows while it runs."""
    file = StringIO()
    console = Console(file=file, width=80, force_terminal=terminal, legacy_windows=False, color_system=None)
    with ExitStack() as stack:
        listen = stack.enter_context(study_display(console, 3, quiet=False))
        listener = stack.enter_context(listen(label))
        listener.on_start(RunOverview("what it is", "fedavg", 40, 2), [{"round": number} for number in range(1, 39)])
        for client in range(2):
            listener.on_client(39, client)
        listener.on_round({"round": 39, "seconds": 0.5, "test_accuracy": 12.5})
        listener.on_note("a note")
        listener.on_personal_model(3, 9)
    return file.getvalue()


def test_lines_have_the_label_and_count_the_runs_that_ended():
    lines = show("fedavg seed 1 (1/3)", terminal=False).splitlines()
    assert [line.partition("]")[0] for line in lines[:-1]] == ["[fedavg seed 1 (1/3)"] * (len(lines) - 1)
    assert "a note" in lines[-2]
    assert lines[-1].startswith("1 of 3 runs ended")


@pytest.mark.parametrize(
    "label", ["fedavg seed 1 (1/3)", "fedavg lr=0.01 momentum=0.5 weight_decay=0.001, seed 1 (1/3)"]
)
def test_bars_fit_eighty_columns(label):
    text = show(label, terminal=True)
    lines = [line for part in text.split("\x1b[1A") for line in part.replace("\r", "\n").splitlines()]
    plain = [line.replace("\x1b[2K", "").replace("\x1b[?25l", "").replace("\x1b[?25h", "") for line in lines]
    assert max(map(len, plain)) <= 80
    assert any(line.startswith("all runs") and "1/3" in line for line in plain)
    assert "a note" in text
    assert "39/40  own models 3/9" in "".join(plain)


def test_quiet_shows_nothing():
    file = StringIO()
    with study_display(Console(file=file), 1, quiet=True) as listen, listen("label") as listener:
        listener.on_note("a note")
    assert file.getvalue() == ""


class Notes(RunListener):
    """Keeps the notes of several runs."""

    def __init__(self):
        self.notes = []

    def on_note(self, text):
        self.notes.append(text)


@pytest.mark.thorough
def test_after_the_first_round_fewer_runs_share_a_small_memory(machine, runs):
    machine(cores=2, free=0)
    planned = runs(2, rounds=2, epochs=1, model="mlp", metrics=["accuracy"], clients_per_round=2)
    listener, labels = Notes(), []

    def listen(label):
        labels.append((label, [run.is_finished for run in planned]))
        return nullcontext(listener)

    assert run_side_by_side(planned, Jobs(2, 1, chosen=True), listen) == {}
    assert [note for note in listener.notes if "1 run at a time instead of 2: a run takes up to 0." in note]
    assert labels == [("seed 1 (1/2)", [False, False]), ("seed 2 (2/2)", [True, False])]
    assert all(run.is_finished for run in planned)
