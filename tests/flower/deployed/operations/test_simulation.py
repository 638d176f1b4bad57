"""The app of a run under Flower's own simulation, where nodes are workers of Ray."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray", reason="simulation under Flower needs Ray: pip install 'fedblade[flower]'")
from fedblade.flower import _processes, app_place, make_app
from fedblade.flower._control import CONNECTION, SuperLink, write_connection
from fedblade.flower._ports import free_ports, is_open

pytestmark = pytest.mark.slow
KEYS = {"method": "fedavg", "model": "mlp", "num_clients": 3, "clients_per_round": 2, "rounds": 2, "epochs": 1}


def test_the_app_runs_under_ray(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    make_app(tmp_path / "app", None, KEYS)
    place, out, port = app_place(tmp_path / "app"), tmp_path / "out", free_ports(1)[0]
    write_connection(place, f"127.0.0.1:{port}", None)
    arguments = [
        _processes.command("flower-superlink"), "--simulation", "--insecure", "--host", "127.0.0.1",
        "--port", str(port),
    ]  # fmt: skip
    process = _processes.start(place, arguments, "superlink.log", place.home)
    try:
        deadline = time.monotonic() + 60
        while not is_open(port):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        nodes = "num-supernodes=3 client-resources-num-cpus=1 init-args-num-cpus=2"
        subprocess.run(
            [
                _processes.command("flwr"), "run", str(place.folder), CONNECTION,
                "-c", f"run-dir='{out}'", "--federation-config", nodes,
            ],
            env=_processes.environment(place.home) | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True,
        )  # fmt: skip
        with SuperLink(place) as superlink:
            while not (run := superlink.runs()[0])["status"].startswith("finished"):
                assert time.monotonic() < deadline + 180, os.fspath(place.logs)
                time.sleep(1)
        assert run["status"] == "finished:completed", (place.logs / "superlink.log").read_text()
    finally:
        _processes.end_all(place, 10.0)
        process.wait()
    assert json.loads((out / "summary.json").read_text())["status"] == "finished"
    assert len((out / "history.jsonl").read_text().splitlines()) == 2
