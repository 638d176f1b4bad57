"""Rounds in which nobody trains are flagged, and a run of nothing else fails."""

import json
import warnings

import numpy as np
import pytest

import fedblade
from fedblade.core.errors import RunFailed
from fedblade.data import Dataset, Part
from fedblade.report import build_report
from fedblade.results import comparison_rows

with warnings.catch_warnings():
    # The pinned typer uses a name that the pinned click announces to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from fedblade.results import comparison_table

KEYS = {"model": "mlp", "num_clients": 2, "clients_per_round": 1, "metrics": ["accuracy"], "partition": "natural"}
DROP = {"last_batch": "drop"}
BATCH_NORM = {"model.neck": 4, "model.neck_norm": "batch"}


def clients(*sizes):
    """Client i holds so many samples."""
    count = sum(sizes)
    x = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    part = Part(x, np.arange(count) % 3, np.repeat(np.arange(len(sizes)), sizes))
    return Dataset("made", part, part, 3, group_names=tuple(map(str, range(len(sizes)))))


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_run_in_which_nobody_trains_fails_and_says_what_to_change(tmp_path, engine):
    data = clients(12, 9)
    out = tmp_path / "run"
    with pytest.raises(RunFailed, match="no client made a step in any of the 3 rounds") as caught:
        fedblade.run("quickstart", dataset=data, rounds=3, engine=engine, out=out, **KEYS, **DROP)
    assert caught.value.exit_status == 1
    assert "'drop', and the largest of the clients that took part has 12 samples. Set local.last_batch=keep," in str(
        caught.value
    )
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert summary["flags"] == ["no client made a step in 3 of 3 rounds"]
    with pytest.raises(RunFailed, match="no client made a step"):
        fedblade.run("quickstart", dataset=data, rounds=3, engine=engine, out=out, resume=True, **KEYS, **DROP)


def test_what_to_change_follows_from_why_nobody_trained():
    """The first client is in no cohort and does not count."""
    cases = (
        (
            (1, 1, 1),
            BATCH_NORM,
            "has 1 sample, and BatchNorm layers cannot train on a batch of one sample. Give clients",
        ),
        ((8, 8, 8), BATCH_NORM | {"batch_size": 1}, "one sample. Set local.batch_size to 2 or more."),
        ((40, 9, 5), DROP | {"seed": 3}, "took part has 9 samples. Set local.last_batch=keep, lower local.batch_size"),
    )
    for sizes, keys, said in cases:
        with pytest.raises(RunFailed, match="no client made a step") as caught:
            fedblade.run("quickstart", dataset=clients(*sizes), rounds=1, **KEYS | {"num_clients": 3} | keys)
        assert said in str(caught.value)
        assert ("last_batch=keep" in str(caught.value)) == ("last_batch" in keys)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_run_with_some_such_rounds_is_flagged_everywhere(tmp_path, engine):
    out = tmp_path / "run"
    data = clients(40, 9)
    result = fedblade.run("quickstart", dataset=data, rounds=6, engine=engine, out=out, **KEYS, **DROP)
    idle = [row["clients"] == [1] for row in result.history]
    assert 0 < sum(idle) < 6
    assert [bool(row.get("count_untrained_rounds")) for row in result.history] == idle
    flag = f"no client made a step in {sum(idle)} of 6 rounds"
    assert result.summary["flags"] == [flag]
    rows = comparison_rows([out])
    assert f"{flag} (seed" in "\n".join(comparison_table(rows, "terminal").notes)
    assert f"{flag} (seed" in build_report([out], tmp_path / "page.html").read_text()
