"""How a local federation grows over many rounds: `python -m benchmarks.processes.federation_growth [ROUNDS]`.

The figures are those of the operator's page. A tiny model is trained by two nodes, and a round takes some seconds. The
table is printed row by row, and the federation is ended at the end.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

_SETTINGS = ("dataset=digits", "model=mlp", "method=fedavg", "num_clients=2", "clients_per_round=2", "epochs=1")
_SHOWN = {
    "SuperLink MB": ('process_memory_bytes{process="superlink"}', 1e6),
    "SuperNode MB": ('process_memory_bytes{process="node-1"}', 1e6),
    "node's executor MB": ('process_memory_bytes{process="node-1-executor"}', 1e6),
    "all processes MB": ("memory_bytes", 1e6),
    "database MB": ("database_bytes", 1e6),
    "logs kB": ("log_bytes", 1e3),
}
_PAUSE = 1.0


def measure(folder: Path, rounds: int) -> None:
    """Run the federation and print a row of the table at the first round and after every quarter of the rounds."""
    app = folder / "app"
    settings = [part for setting in (*_SETTINGS, f"rounds={rounds}") for part in ("--set", setting)]
    _fedblade("init", str(app), *settings)
    _fedblade("up", str(app), "--nodes", "2")
    try:
        port = json.loads(_fedblade("status", str(app), "--json"))["pages_port"]
        names = ("round", *_SHOWN, "run folder kB")
        print(f"| {' | '.join(names)} |\n|{' --- |' * len(names)}", flush=True)
        marks = sorted({1, *(rounds * quarter // 4 for quarter in range(1, 5))} - {0})
        run = _start("run", str(app), "--out", str(folder / "run"), "--quiet")
        while marks and run.poll() is None:
            told = _figures(port)
            if told.get("rounds_done", 0) >= marks[0]:
                marks.pop(0)
                print(_row(told, folder / "run"), flush=True)
            time.sleep(_PAUSE)
        if run.wait():
            sys.exit("the run failed")
        if marks:
            print(_row(_figures(port), folder / "run"), flush=True)
    finally:
        _fedblade("down", str(app))


def _row(told: dict[str, float], run: Path) -> str:
    shown = [f"{told[name] / unit:.1f}" for name, unit in _SHOWN.values()]
    size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    return f"| {told['rounds_done']:.0f} | {' | '.join(shown)} | {size / 1e3:.1f} |"


def _figures(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name.removeprefix("fedblade_"): float(value) for name, _, value in pairs}


def _fedblade(*arguments: str) -> str:
    process = _start(*arguments)
    printed, _ = process.communicate()
    if process.returncode:
        sys.exit(f"fedblade flower {arguments[0]} failed")
    return printed


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "fedblade", "flower", *arguments], stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else 200)
