"""Disks that fill up and losses that blow up: status 1, one line, and nothing lost that was reached."""

import json
import resource

import pytest

from fedblade.core.errors import NonFinite


def limited(size):
    """What a child does first so that no file of its own can grow beyond `size` bytes: a disk that is full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def failed_line(child):
    """The one line of a run that failed."""
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1, err
    assert len(err.splitlines()) == 1, err
    assert "Traceback" not in err
    return err


def status_of(folder):
    return json.loads((folder / "summary.json").read_text())["status"]


@pytest.fixture
def sizes(job, tmp_path):
    """Bytes of the files that a whole run of a configuration writes."""

    def measure(mine):
        folder = tmp_path / "measured"
        mine.run(folder)
        return {
            "checkpoint": max(p.stat().st_size for p in folder.glob("checkpoints/round-*")),
            "client": max((p.stat().st_size for p in folder.glob("checkpoints/clients/*.states")), default=0),
            "model": (folder / "model.safetensors").stat().st_size,
            "history": (folder / "history.jsonl").stat().st_size,
            "small": max((folder / n).stat().st_size for n in ("config.toml", "partition.json", "summary.json")),
        }

    return measure


def check(mine, folder, limit, file, undisturbed, outcome_of):
    """Run into the limit, read what the run says, and go on without it."""
    line = failed_line(mine.start(folder, preexec_fn=limited(limit)))
    assert any(name in line for name in file.split(" or "))
    assert "bug" not in line
    assert "--resume" in line
    assert status_of(folder) == "failed"
    assert not list(folder.rglob("*.tmp"))
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


@pytest.mark.thorough
def test_a_checkpoint_that_does_not_fit(job, sizes, undisturbed, outcome_of, tmp_path):
    mine = job(rounds=3)
    size = sizes(mine)
    limit = size["checkpoint"] - 1
    assert size["small"] < limit
    check(mine, tmp_path / "run", limit, "round-000001.safetensors", undisturbed, outcome_of)


@pytest.mark.thorough
def test_a_model_that_does_not_fit(job, sizes, undisturbed, outcome_of, tmp_path):
    """The model's file carries more words than a checkpoint: a limit between the two fails at the very end."""
    mine = job(rounds=3)
    size = sizes(mine)
    assert max(size["checkpoint"], size["small"]) < size["model"] - 1
    check(mine, tmp_path / "run", size["model"] - 1, "model.safetensors", undisturbed, outcome_of)


@pytest.mark.thorough
def test_a_clients_state_that_does_not_fit(job, sizes, undisturbed, outcome_of, tmp_path, methods_of_mine):
    mine = job(rounds=3, method=methods_of_mine["scaffold"], momentum=0.0)
    size = sizes(mine)
    assert size["small"] < size["client"] - 1
    check(mine, tmp_path / "run", size["client"] - 1, "clients", undisturbed, outcome_of)


@pytest.mark.thorough
def test_a_line_of_the_history_that_fits_only_in_part(job, sizes, undisturbed, outcome_of, tmp_path):
    """A write that is cut short reports no error: it must be noticed all the same."""
    mine = job(rounds=30, hidden=[2], dim=2, norm="none")
    size = sizes(mine)
    limit = int(0.7 * size["history"])
    assert max(size["small"], size["checkpoint"], size["model"]) < limit
    check(mine, tmp_path / "run", limit, "history.jsonl or journal.jsonl", undisturbed, outcome_of)


def test_a_rate_that_is_far_too_high_fails_with_client_and_term(job, tmp_path):
    folder = tmp_path / "run"
    line = failed_line(job(lr=1e9, norm="none").start(folder))
    assert "client" in line
    assert "supervised" in line or "delta" in line
    assert "optimizer.lr" in line or "learning rate" in line
    assert status_of(folder) == "failed"


@pytest.mark.thorough
def test_a_term_that_turns_nan_fails_and_keeps_the_history(job, undisturbed, tmp_path, methods_of_mine):
    mine, folder = job(method=methods_of_mine["breaks"], rounds=9), tmp_path / "run"
    line = failed_line(mine.start(folder))
    assert "term 'breaking'" in line
    assert "round 4" in line
    rows = [json.loads(text) for text in (folder / "history.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert f"client {sorted(expected_cohort(mine))[0]} " in line
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("failed", 3)
    assert "breaking" in summary["error"]
    assert summary["final_accuracy"] == rows[-1]["test_accuracy"]
    with pytest.raises(NonFinite, match="breaking"):
        mine.run(folder, resume=True)
    assert len((folder / "history.jsonl").read_text().splitlines()) == 3


def expected_cohort(mine):
    """The clients of round 4; the first of them meets the term first."""
    healthy = type(mine)(mine.data, {"rounds": 4})
    from fedblade.runs import load_config, prepare

    return prepare(load_config("quickstart", healthy.keys)[0]).cohorts[3].tolist()
