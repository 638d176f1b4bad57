"""The picture at several widths, from runs in every state."""

import io
import json
import re

import pytest
from rich.console import Console

from fedblade.watch._folder import WatchedFolder
from fedblade.watch._frame import frame

WIDTHS = (60, 80, 140)


def drawn(path, now, width=80, height=None) -> list[str]:
    """The lines a console of this width shows."""
    folder = WatchedFolder(path)
    folder.refresh()
    console = Console(record=True, width=width, height=height or 200, file=io.StringIO())
    console.print(frame(folder, now, width, height))
    lines = console.export_text().rstrip("\n").split("\n")
    assert max(map(len, lines)) <= width
    assert height is None or len(lines) <= height
    return lines


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("tail", ["", '{"round": 24, "test_'])
def test_a_run_in_progress(run, width, tail):
    at = run.rounds(23, tail=tail)
    lines = drawn(run.path, at + 1, width)
    text = "\n".join(lines)
    assert lines[0].startswith("fedblade on digits · dirichlet alpha 0.1 · sm")
    assert lines[0].endswith("in progress")
    assert lines[1].startswith("round 23 of 60 ━")
    assert lines[1].endswith(" 38 %")
    assert "training 0:34, 1.50 s per round · about 0:54 left\n" in re.sub(" +\n", "\n", text)
    assert re.search(r"test accuracy, % +now 86.96 · last ten 86.12", text)
    assert re.search(r"test loss +now 0.08696", text)
    assert re.search(r"effective rank, features +33  ▁.*█", text)
    assert re.search(r"client drift \(norm\) +0.5  ▄{16,20}", text)
    assert "cosine of updates" not in text
    assert re.search(r"^health  idle clients 1 in the last round$", text, re.MULTILINE)
    assert "scale clamped" not in text
    assert "up 23 kB · down 46 kB" in text
    assert ("2 of 20 clients took part 23 times" in text) == (width > 60)
    assert "stale" not in text


def test_times_of_training_are_on_one_clock_and_what_is_left_says_so_by_another(run):
    """Rounds state 1.5 s of training, and are seen to arrive every 2 s."""
    folder = WatchedFolder(run.path)
    for rounds in (10, 11, 12):
        at = run.rounds(rounds)
        folder.refresh()
    assert "training 0:18, 1.50 s per round · about 1:36 left with evaluation" in frame(folder, at, 80).plain


@pytest.mark.parametrize(("rounds", "said"), [(10, "last ten"), (9, "all nine"), (2, "all two")])
def test_the_mean_says_which_rounds_it_is_over(run, rounds, said):
    at = run.rounds(rounds)
    mean = sum(90 - 70 / number for number in range(1, rounds + 1)) / rounds
    assert f" · {said} {mean:.2f}" in "\n".join(drawn(run.path, at))


def test_of_one_round_there_is_no_mean(run):
    text = "\n".join(drawn(run.path, run.rounds(1)))
    assert re.search(r"test accuracy, % +now 20\n", re.sub(" +\n", "\n", text))


def test_what_cannot_be_read_is_named(run):
    at = run.rounds(3, test_accuracy="abc")
    assert "! Left out, because it cannot be read: test_accuracy of rounds 1, 2, 3 in" in "\n".join(drawn(run.path, at))


@pytest.mark.parametrize("width", [*WIDTHS, 99, 100, 119, 120])
def test_no_sparkline_is_cut(run, width):
    lines = drawn(run.path, run.rounds(60), width)
    rows = [line for line in lines if line.startswith(("client drift", "effective rank"))]
    assert len(rows) == 2
    assert not any("…" in row for row in rows)


@pytest.mark.parametrize("width", [20, 59, 99, 100, 101, 200])
@pytest.mark.parametrize("rounds", [0, 1, 2, 23])
def test_every_width_and_length_fits(run, width, rounds):
    drawn(run.path, run.rounds(rounds), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("height", [20, 24, 30, 50])
def test_the_height_of_the_terminal_is_kept(run, make_run, tmp_path, width, height):
    at = run.rounds(23, **{f"gauge_{n}": float(n) for n in range(60)})
    lines = drawn(run.path, at, width, height)
    assert any("more in history.jsonl" in line for line in lines)
    assert lines[-1].startswith("traffic")
    for name in range(30):
        make_run(f"{name:02d}").rounds(5)
    lines = drawn(tmp_path / "runs", at, width, height)
    assert lines[-1].startswith("traffic")


def test_curves_rise_and_fall(run):
    lines = drawn(run.path, run.rounds(60))
    top = next(at for at, line in enumerate(lines) if line.startswith("test accuracy"))
    rows = [re.sub(r"[^⠁-⣿]", "", line) for line in lines[top + 1 : top + 7]]
    assert [line.split()[0] for line in (lines[top + 1], lines[top + 6])] == ["88.83", "20"]
    assert len(rows[0]) > 40 > len(rows[-1]) > 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("status", ["finished", "interrupted"])
def test_a_run_that_ended(run, width, status):
    at = run.end(status, 7, at=run.rounds(7))
    lines = drawn(run.path, at + 1e6, width)
    assert lines[0].endswith(status)
    assert "left" not in "\n".join(lines)
    assert "stale" not in "\n".join(lines)


def test_a_failed_run_says_why(run):
    at = run.end("failed", 7, at=run.rounds(7), error="the parameters became non-finite in round 8.")
    text = "\n".join(drawn(run.path, at))
    assert "! failed: the parameters became non-finite in round 8." in text


def test_a_calibrated_run_shows_what_calibration_gave(run):
    at = run.end("finished", 7, at=run.rounds(7, calibrated_accuracy=99.0), calibrated=True, final_accuracy=99.0)
    text = "\n".join(drawn(run.path, at))
    assert "calibrated 99.00" in text
    assert "calibrated_accuracy" not in text


@pytest.mark.parametrize(("age", "stale"), [(7.0, False), (11.0, True), (100.0, True)])
def test_a_run_that_stopped_writing_is_stale(run, make_run, tmp_path, age, stale):
    at = run.rounds(10)
    assert ("! stale: no new round for" in "\n".join(drawn(run.path, at + age))) == stale
    make_run("a").rounds(10)
    make_run("b").rounds(10)
    table = drawn(tmp_path / "runs", at + age)
    assert [line.rstrip().endswith("stale") for line in table[1:3]] == [stale, stale]


def test_losses_that_are_not_finite_are_named(run):
    run.rounds(3)
    broken = {"round": 4, "test_accuracy": 10.0, "test_loss": None, "loss_supervised": None, "seconds": 1.5}
    with (run.path / "history.jsonl").open("a") as file:
        file.write(json.dumps(broken) + "\n")
    text = "\n".join(drawn(run.path, run.start))
    assert "! not finite in the last round: test_loss, loss_supervised" in text


def test_a_round_without_evaluation_has_not_lost_its_loss(run):
    run.rounds(3)
    with (run.path / "history.jsonl").open("a") as file:
        file.write(json.dumps({"round": 4, "loss_supervised": 1.0, "seconds": 1.5}) + "\n")
    assert "not finite" not in "\n".join(drawn(run.path, run.start))


def test_events_are_added_up_and_states_are_not(run):
    rows = [
        {"round": 1, "count_idle_clients": 3, "count_dead_features": 40, "count_scale_clamped": 1, "count_own": 2},
        {"round": 2, "count_clients_without_test_samples": 5, "count_idle_clients": 0, "count_dead_features": 40},
        {"round": 3, "count_idle_clients": 0, "count_dead_features": 60, "count_own": 2, "count_cholesky_failures": 0},
    ]
    run.write("history.jsonl", "".join(json.dumps(row) + "\n" for row in rows), at=run.start)
    lines = [line for line in drawn(run.path, run.start) if line.startswith("health")]
    assert lines == [
        "health  clients without test samples 5 in round 2",
        "health  dead features 60 in the last round",
        "health  idle clients 0 in the last round, at most 3 in one",
        "health  own 4 (2 in the last round)",
        "health  scale clamped 1 (0 in the last round)",
    ]


def test_values_that_diverge_are_drawn(run):
    at = run.rounds(3, test_loss=1e308, erank_feature=-1e308)
    with (run.path / "history.jsonl").open("a") as file:
        file.write(json.dumps({"round": 4, "test_accuracy": 1.0, "test_loss": -1e308, "erank_feature": 1e308}) + "\n")
    assert any("1e+150" in line for line in drawn(run.path, at))


def test_waiting_for_a_run_and_for_its_first_round(run, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "waiting for a run in" in drawn(tmp_path / "empty", 0.0)[0]
    text = "\n".join(drawn(run.path, run.start + 1e6))
    assert "waiting for the first round" in text
    assert "no round has been evaluated yet" in text
    assert "every counter is zero" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_a_folder_of_runs_has_a_table_and_the_run_in_progress(make_run, tmp_path, width):
    done = make_run("fedavg-seed1", method="fedavg")
    done.end("finished", 60, at=done.rounds(60), method="fedavg")
    now = make_run("fedetf-seed1", method="fedetf").rounds(12)
    make_run("broken").write("config.toml", "[[[", at=done.start)
    lines = drawn(tmp_path / "runs", now, width)
    assert lines[0].startswith("3 runs")
    assert lines[0].endswith("2 in progress and 1 finished")
    assert re.match(r"  broken .* in progress", lines[1])
    assert re.match(r"  fedavg-seed1 +60/60  88.83 %.*  finished", lines[2])
    assert re.match(r"▸ fedetf-seed1 .* 12/60  84.17 %.*  in progress", lines[3])
    assert lines[5].startswith("! Left out, because it cannot be read: broken/config.toml")
    assert any(line.startswith("fedetf on digits") for line in lines)


def test_a_personal_method_says_whose_accuracy_it_is(run):
    at = run.end("finished", 5, at=run.rounds(5), accuracy_of="personal")
    assert any(line.startswith("test accuracy of personal models, %") for line in drawn(run.path, at))


def test_names_from_files_cannot_steer_the_terminal(run):
    run.write("config.toml", '[method]\nname = "a\\u001b[31mb"\n', at=run.start)
    run.rounds(2, **{"gauge\x1b[2J": 1.0, "count_\x1b[2J": 3})
    folder = WatchedFolder(run.path)
    folder.refresh()
    assert "\x1b" not in frame(folder, run.start, 80).plain
