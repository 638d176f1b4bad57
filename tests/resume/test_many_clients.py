"""Ten thousand clients with state of their own need no more memory than five hundred: their state is on disk.

Runs happen in processes of their own, and their resident memory is read from /proc. A client keeps SCAFFOLD's control,
some 150 kB, so the state of all would be 1.5 GB. What may grow with the population is a few numbers per client (the
split, the cohorts): far below `ROOM`, which also covers what the allocator does differently from run to run.
"""

import json
import shutil
import subprocess
import sys

import pytest

STATE = 4 * (1000 * 32 + 1000 + 4 * 1000 + 4 + 4 * 10 + 10)
"""Bytes of a client's state: layers from 32 inputs to 1000 and on to 4 features, and a head of 10 classes."""
MEGABYTE = 2**20
ROOM = 16 * MEGABYTE

CHILD = """
import json, sys
import numpy as np, torch
import fedblade
from fedblade.experiment._progress import Silent

def memory(field):
    # Not getrusage: its maximum starts with that of the process this one was forked from.
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

class Watch(Silent):
    resident = []
    def on_round(self, row):
        self.resident.append(memory("VmRSS"))

torch.set_num_threads(1)
clients, cohort, rounds, out = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] or None
inputs = np.random.default_rng(0).random((20_000, 32), dtype=np.float32)
labels = np.arange(20_000) % 10
fedblade.run(
    method="scaffold", dataset=(inputs, labels, inputs[:100], labels[:100]), partition="iid", num_clients=clients,
    clients_per_round=cohort, rounds=rounds, epochs=1, batch_size=64, model="mlp", hidden=[1000], dim=4, out=out,
    watcher=Watch(),
)
print(json.dumps({"peak": memory("VmHWM"), "resident": Watch.resident}))
"""


def run(clients: int, cohort: int, rounds: int, out: object = "") -> dict[str, object]:
    """One step of each client of a cohort in every round; without a folder state stays in memory."""
    command = [sys.executable, "-c", CHILD, str(clients), str(cohort), str(rounds), str(out)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def take_stock(out) -> tuple[int, int]:
    """How many clients have state in the folder of a run, and the bytes of one; the folder, which is large, goes."""
    files = list((out / "checkpoints" / "clients").rglob("*.safetensors"))
    found = len({path.parent for path in files}), files[0].stat().st_size
    shutil.rmtree(out)
    return found


def test_memory_does_not_grow_as_more_clients_own_state(tmp_path):
    """Nearly every client of a round is new, so each round adds state that would show."""
    resident = run(10_000, 150, 4, tmp_path / "run")["resident"]
    clients, size = take_stock(tmp_path / "run")
    assert clients > 570
    assert 0 <= size - STATE < 4096
    added = (clients - 150) * STATE
    assert added > 3 * ROOM
    assert resident[-1] - resident[0] < ROOM


def test_the_measurement_sees_state_in_memory():
    """The same run without a folder keeps all state in memory, and must be seen to."""
    resident = run(10_000, 150, 4)["resident"]
    assert resident[-1] - resident[0] > 3 * ROOM


@pytest.mark.slow
def test_ten_thousand_clients_need_no_more_memory_than_five_hundred(tmp_path):
    """Same cohort, rounds, samples and steps; only the number of clients differs."""
    few, many = (run(clients, 200, 6, tmp_path / f"{clients}")["peak"] for clients in (500, 10_000))
    (some, _), (more, size) = (take_stock(tmp_path / f"{clients}") for clients in (500, 10_000))
    assert some <= 500
    assert more > 1100
    assert 10_000 * size > 1_000 * MEGABYTE
    assert (more - some) * size > 5 * ROOM
    assert many - few < ROOM
