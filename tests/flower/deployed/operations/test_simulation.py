"""The app of a run under Flower's own simulation, where nodes are workers of Ray."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray", reason="simulation under Flower needs Ray: pip install 'fedblade[flower]'")
from fedblade.flower import _processes
from fedblade.flower._processes import free_ports, is_open
from fedblade.flower._superlink import CONNECTION, SuperLink, write_connection
from fedblade.flower.app_folder import find_app
from fedblade.flower.new_app import make_app

pytestmark = pytest.mark.slow
KEYS = {"method": "fedavg", "model": "mlp", "num_clients": 3, "clients_per_round": 2, "rounds": 2, "epochs": 1}


def test_the_app_runs_under_ray(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    make_app(tmp_path / "app", None, KEYS)
    app, out, port = find_app(tmp_path / "app"), tmp_path / "out", free_ports(1)[0]
    write_connection(app, f"127.0.0.1:{port}", None)
    arguments = [
        _processes.command("flower-superlink"), "--simulation", "--insecure", "--host", "127.0.0.1",
        "--port", str(port),
    ]  # fmt: skip
    process = _processes.start(app, arguments, "superlink.log", app.home)
    try:
        deadline = time.monotonic() + 60
        while not is_open(port):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        nodes = "num-supernodes=3 client-resources-num-cpus=1 init-args-num-cpus=2"
        subprocess.run(
            [
                _processes.command("flwr"), "run", str(app.path), CONNECTION,
                "-c", f"run-dir='{out}'", "--federation-config", nodes,
            ],
            env=_processes.environment(app.home) | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True,
        )  # fmt: skip
        with SuperLink(app) as superlink:
            while not (run := superlink.runs()[0])["status"].startswith("finished"):
                assert time.monotonic() < deadline + 180, os.fspath(app.logs)
                time.sleep(1)
        assert run["status"] == "finished:completed", (app.logs / "superlink.log").read_text()
    finally:
        _processes.end_all(app, 10.0)
        process.wait()
    assert json.loads((out / "summary.json").read_text())["status"] == "finished"
    assert len((out / "history.jsonl").read_text().splitlines()) == 2
