"""Memory that ran out on a CPU ends a run with advice, and any other error stays what it is."""

import json

import numpy as np
import pytest

import fedblade
from fedblade.core.errors import RunFailed
from fedblade.runs._memory import explained_out_of_memory

FAR_TOO_MUCH = 10**13


def test_a_model_that_does_not_fit_is_refused_with_advice():
    """No machine can address the 2 PB of its first layer."""
    with pytest.raises(RunFailed, match=r"the machine's memory is too small \(.*you tried to allocate") as caught:
        fedblade.run("quickstart", model="mlp", hidden=[FAR_TOO_MUCH], dim=16, rounds=1)
    assert "engine=sequential" in str(caught.value)
    assert "local.batch_size" in str(caught.value)


def test_memory_that_runs_out_in_a_round_leaves_a_run_that_says_so(tmp_path):
    class Hungry(fedblade.api.RunListener):
        def on_round(self, record):
            np.empty(FAR_TOO_MUCH, dtype=np.float64)

    out = tmp_path / "run"
    with pytest.raises(RunFailed, match="the machine's memory is too small"):
        fedblade.run("quickstart", model="mlp", rounds=2, metrics=["accuracy"], out=out, listener=Hungry())
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("failed", 1)
    assert summary["error"].startswith("the machine's memory is too small")
    assert (out / "checkpoints" / "round-000001.safetensors").is_file()


@pytest.mark.parametrize("error", [RuntimeError("shapes do not fit"), ValueError("can't allocate memory")])
def test_other_errors_are_not_about_memory(error):
    with pytest.raises(type(error), match=str(error)), explained_out_of_memory():
        raise error
