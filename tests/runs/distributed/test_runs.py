"""`torchrun -m fedblade run`: the files of one process, ranks that die, and going on afterwards."""

import json
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedblade
from fedblade.core.errors import Misconfigured, Unsupported
from support.run_files import count_rounds, files_of, rows


@pytest.fixture
def job(digits_file):
    """The keys of a small run."""

    def keys(**changes):
        return {
            "dataset": "arrays", "dataset.path": str(digits_file), "device": "cpu", "model": "mlp", "hidden": [16],
            "dim": 8, "norm": "batch", "method": "scaffold", "momentum": 0.0, "num_clients": 8,
            "clients_per_round": 5, "rounds": 4, "epochs": 1, "metrics": "accuracy,drift,local_spectrum",
        } | changes  # fmt: skip

    return keys


def command(keys, out, *options, **distributed):
    own = {f"distributed.{key}": value for key, value in distributed.items()}
    settings = [f"{key}={value}" for key, value in (keys | own).items()]
    settings = [part for each in settings for part in ("--set", each)]
    return ("-m", "fedblade", "run", "quickstart", *settings, "--out", out, *options)


def test_files_are_those_of_one_process(torchrun, job, tmp_path):
    keys = job()
    done = torchrun(2, *command(keys, "shared", order="fixed")).done()
    assert done.out.splitlines()[-1] == "shared"
    assert done.out.count("\nshared\n") == 1
    fedblade.run("quickstart", out=tmp_path / "alone", engine="sequential", **keys)
    assert files_of(tmp_path / "shared") == files_of(tmp_path / "alone")


def test_a_folder_of_clients_gives_the_files_of_one_process(torchrun, job, tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "wards").mkdir()
    for k, samples in enumerate((40, 25, 9, 31)):
        x, y = rng.random((samples, 6), dtype=np.float32), rng.integers(0, 3, samples)
        np.savez(tmp_path / "wards" / f"ward{k}.npz", x_train=x, y_train=y)
    keys = job(**{"dataset": "clients", "dataset.path": str(tmp_path / "wards"), "method": "fedper", "rounds": 2})
    del keys["num_clients"], keys["clients_per_round"]
    done = torchrun(2, *command(keys, "shared", order="fixed")).done()
    assert done.out.count("is lowered from 10 to 4") == 1
    assert done.out.count("a fifth of the client's samples is held out") == 1
    fedblade.run("quickstart", out=tmp_path / "alone", engine="sequential", **keys)
    assert files_of(tmp_path / "shared") == files_of(tmp_path / "alone")


def test_ranks_end_together_when_patience_is_lost(torchrun, job, tmp_path):
    keys = job(rounds=30, patience=1)
    done = torchrun(2, *command(keys, "shared", order="fixed")).done()
    assert "stopped after round" in done.out
    result = fedblade.run("quickstart", out=tmp_path / "alone", engine="sequential", **keys)
    assert len(result.history) < 30
    assert files_of(tmp_path / "shared") == files_of(tmp_path / "alone")


def until(launch, folder, rounds):
    while count_rounds(folder) < rounds:
        assert launch.process.poll() is None, launch.end().err
        time.sleep(0.01)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("store", "victim"),
    [("shared", 1), pytest.param("rank", 1, marks=pytest.mark.slow), pytest.param("rank", 0, marks=pytest.mark.slow)],
)
def test_a_killed_rank_ends_the_run_which_goes_on_to_the_same_weights(torchrun, job, tmp_path, store, victim):
    keys = job(rounds=20, **{"checkpoint.every": 3})
    asked = {"order": "fixed", "store": store, "timeout_seconds": 20.0}
    launch = torchrun(2, *command(keys, "run", **asked))
    ranks = launch.ranks()
    until(launch, tmp_path / "run", 4)
    os.kill(ranks[victim], signal.SIGKILL)
    assert launch.end(30).status == 1
    # Whichever comes first: that the connection breaks, or the signal that torchrun then sends.
    assert f"lost rank {victim}" in launch.err or "stopped; to go on" in launch.err
    assert "--resume" in launch.err
    assert len(rows(tmp_path / "run")) < 20
    torchrun(2, *command(keys, "run", "--resume", **asked)).done()
    fedblade.run("quickstart", out=tmp_path / "alone", engine="sequential", **keys)
    assert files_of(tmp_path / "run") == files_of(tmp_path / "alone")


@pytest.mark.slow
def test_rank_1_says_how_to_go_on_if_a_signal_reaches_it_before_the_broken_connection(torchrun, job, tmp_path):
    """Rank 0 cannot: it hangs when the signal comes, and is killed afterwards."""
    launch = torchrun(2, *command(job(rounds=400), "run", order="fixed"))
    ranks = launch.ranks()
    until(launch, tmp_path / "run", 4)
    os.kill(ranks[0], signal.SIGSTOP)
    os.kill(ranks[1], signal.SIGTERM)
    time.sleep(1)
    os.kill(ranks[0], signal.SIGKILL)
    assert launch.end(40).status == 1
    assert launch.err.count("stopped; to go on with torchrun, as before: fedblade run quickstart") == 1
    assert "--resume" in launch.err


@pytest.mark.thorough
def test_ranks_with_other_settings_end_alike_and_rank_0_says_why(torchrun, job, tmp_path):
    fedblade_run = shlex.join([sys.executable, *map(str, command(job(), "run"))])
    script = f"trap '' TERM; {fedblade_run} --set lr=0.$((RANK + 1)); echo $? > status-$RANK; exit $(cat status-$RANK)"
    launch = torchrun(2, "--no-python", "sh", "-c", script).end()
    assert launch.status == 1
    assert launch.err.count("error: the ranks were asked for different runs: rank 1 on ") == 1
    assert "has optimizer.lr = 0.2 (rank 0: 0.1)." in launch.err
    assert [(tmp_path / f"status-{rank}").read_text() for rank in range(2)] == ["2\n", "2\n"]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["shared", "rank"])
def test_ranks_go_back_to_an_earlier_round(torchrun, job, tmp_path, store):
    keys, asked = job(rounds=6, **{"checkpoint.every": 2, "checkpoint.keep": 3}), {"order": "fixed", "store": store}
    torchrun(2, *command(keys, "run", **asked)).done()
    done = torchrun(2, *command(keys, "run", "--resume", "--from-round", "2", **asked)).done()
    assert done.out.splitlines()[-1] == "run-from-2"
    assert files_of(tmp_path / "run-from-2") == files_of(tmp_path / "run")
    if store == "rank":
        shutil.rmtree(tmp_path / "run" / "checkpoints" / "clients-rank1")
        refused = torchrun(2, *command(keys, "run", "--resume", "--from-round", "2", **asked)).end()
        assert "the clients' states of rank 1 are not in 'run/checkpoints/clients-rank1'" in refused.err
        assert not (tmp_path / "run-from-2-2").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_all_ranks_and_leaves_a_run_that_goes_on(torchrun, job, tmp_path, number):
    keys = job(rounds=20)
    launch = torchrun(2, *command(keys, "run", order="fixed"))
    until(launch, tmp_path / "run", 4)
    ranks = launch.ranks()
    launch.process.send_signal(number)
    launch.end(20)
    assert "to go on" in launch.err
    assert "--resume" in launch.err
    assert not any(Path(f"/proc/{process}").exists() for process in ranks.values())
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"
    torchrun(2, *command(keys, "run", "--resume", order="fixed")).done()
    fedblade.run("quickstart", out=tmp_path / "alone", engine="sequential", **keys)
    assert files_of(tmp_path / "run") == files_of(tmp_path / "alone")


@pytest.mark.slow
def test_a_rank_that_hangs_ends_the_run_within_the_timeout(torchrun, job, tmp_path):
    launch = torchrun(2, *command(job(rounds=400), "run", timeout_seconds=3.0))
    until(launch, tmp_path / "run", 4)
    ranks = launch.ranks()
    os.kill(ranks[1], signal.SIGSTOP)
    began = time.monotonic()
    while Path(f"/proc/{ranks[0]}").exists() and time.monotonic() < began + 15:
        time.sleep(0.05)
    taken = time.monotonic() - began
    os.kill(ranks[1], signal.SIGKILL)
    assert launch.end(30).status == 1
    assert taken < 10
    assert "lost rank 1" in launch.err
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("store", ["shared", "rank"])
def test_going_on_with_another_number_of_ranks(torchrun, job, tmp_path, store):
    """States that all ranks see may be anyone's; those of single ranks are not there any more."""
    keys, asked = job(rounds=30), {"order": "fixed", "store": store}
    launch = torchrun(2, *command(keys, "run", **asked))
    until(launch, tmp_path / "run", 4)
    launch.process.send_signal(signal.SIGTERM)
    launch.end(20)
    again = torchrun(3, *command(keys, "run", "--resume", **asked)).end()
    if store == "rank":
        assert again.status == 1
        assert "error: 'run' was begun with 2 ranks" in again.err
        torchrun(2, *command(keys, "run", "--resume", **asked)).done()
    else:
        assert again.status == 0, again.err
    fedblade.run("quickstart", out=tmp_path / "alone", engine="sequential", **keys)
    assert files_of(tmp_path / "run") == files_of(tmp_path / "alone")


@pytest.mark.slow
def test_a_mistake_is_said_once(torchrun, job):
    launch = torchrun(3, *command(job(method="fedavgg"), "run")).end()
    assert launch.status == 1
    assert launch.err.count("error: unknown method 'fedavgg'") == 1


@pytest.mark.slow
def test_comparisons_are_refused(torchrun, job, tmp_path):
    keys = [part for key, value in job().items() if key != "method" for part in ("--set", f"{key}={value}")]
    launch = torchrun(2, "-m", "fedblade", "compare", "quickstart", "--methods", "fedavg,fedprox", *keys).end()
    assert launch.status == 1
    assert "without torchrun" in launch.err


def test_a_run_of_before_there_were_ranks_goes_on(job, tmp_path):
    """Its configuration has no table of them."""
    keys, out = job(engine="sequential"), tmp_path / "old"
    fedblade.run("quickstart", out=out, **keys)
    text = (out / "config.toml").read_text()
    (out / "config.toml").write_text(text.partition("[distributed]\n")[0])
    assert "distributed" not in (out / "config.toml").read_text()
    (out / "summary.json").unlink()
    assert fedblade.run("quickstart", out=out, resume=True, **keys).summary["status"] == "finished"
    with pytest.raises(Misconfigured, match="distributed"):
        fedblade.run("quickstart", out=out, resume=True, **{"distributed.order": "fixed"}, **keys)


def test_how_long_ranks_wait_may_change(job, tmp_path):
    keys, out = job(engine="sequential"), tmp_path / "run"
    before = fedblade.run("quickstart", out=out, **keys)
    (out / "summary.json").unlink()
    after = fedblade.run("quickstart", out=out, resume=True, **{"distributed.timeout_seconds": 5.0}, **keys)
    assert after.summary["status"] == "finished"
    assert after.history == before.history


def test_one_process_is_told_how_to_be_several(job):
    with pytest.raises(Unsupported, match="torchrun"):
        fedblade.run("quickstart", engine="distributed", **job())
