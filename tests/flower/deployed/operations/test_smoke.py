"""A federation on this machine from the first command to the last, over TLS and with node keys."""

import json
import subprocess

import pytest


@pytest.mark.slow
def test_from_init_to_down(federation):
    federation.up(2)
    returned, status = federation.status()
    assert (returned, status["ready"]) == (0, True)
    assert [(node["clients"], node["state"]) for node in status["nodes"]] == [("0,2", "online"), ("1", "online")]
    assert status["runs"] == []
    out = federation.runs / "first"
    printed = federation.call("run", "--out", str(out), "--quiet")
    assert printed == f"{out}\n"
    said = sorted(json.loads((out / "said.json").read_text()), key=lambda each: each["clients"])
    assert [each["clients"] for each in said] == ["0,2", "1"]
    assert [each["folder"] for each in said] == [str(federation.app.node(number) / "state") for number in (1, 2)]
    left = federation.processes
    assert federation.call("down") == "ended\n"
    assert federation.processes == []
    alive = subprocess.run(["ps", "-o", "stat=", "-p", ",".join(map(str, left))], capture_output=True, text=True)
    assert all(state.startswith("Z") for state in alive.stdout.split())
    assert federation.call("down") == "nothing was running\n"
