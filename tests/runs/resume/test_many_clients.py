"""A million clients with state of their own need no more memory than a thousand: their state is on disk.

Runs happen in processes of their own, and their resident memory is read from /proc. A client keeps SCAFFOLD's control,
some 150 kB, so the state of ten thousand would be 1.5 GB. What may grow with the population is a few numbers per client
(the split, the clients to choose from): below `ROOM`, which also covers what the allocator does differently from run to
run.
"""

import json
import shutil
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from fedblade.runs import RunListener
from support.cohorts import cohorts_of
from support.stored_states import newest_states

pytestmark = pytest.mark.thorough
STATE = 4 * (1000 * 32 + 1000 + 4 * 1000 + 4 + 4 * 10 + 10)
"""Bytes of a client's state: layers from 32 inputs to 1000 and on to 4 features, and a head of 10 classes."""
MEGABYTE = 2**20
ROOM = 16 * MEGABYTE

CHILD = """
import json, sys, time
import numpy as np, torch
import fedblade
from fedblade.runs import RunListener

def memory(field):
    # Not getrusage: its maximum starts with that of the process this one was forked from.
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

class Watch(RunListener):
    resident, seconds = [], []
    def on_start(self, run, history):
        self.began = time.process_time()
    def on_round(self, record):
        self.resident.append(memory("VmRSS"))
        self.seconds.append(time.process_time() - self.began)
        self.began = time.process_time()

torch.set_num_threads(1)
clients, cohort, rounds = map(int, sys.argv[1:4])
out, partition, engine = sys.argv[4] or None, sys.argv[5], sys.argv[6]
inputs = np.random.default_rng(0).random((20_000, 32), dtype=np.float32)
labels = np.arange(20_000) % 10
fedblade.run(
    method="scaffold", dataset=(inputs, labels, inputs[:100], labels[:100]), partition=partition, num_clients=clients,
    clients_per_round=cohort, rounds=rounds, epochs=1, batch_size=64, model="mlp", hidden=[1000], dim=4, out=out,
    engine=engine, listener=Watch(),
)
print(json.dumps({"peak": memory("VmHWM"), "resident": Watch.resident, "seconds": Watch.seconds}))
"""


def run(
    clients: int, cohort: int, rounds: int, out: object = "", partition: str = "iid", engine: str = "sequential"
) -> dict[str, list[float]]:
    """One step of each client of a cohort in every round; without a folder state stays in memory."""
    command = [sys.executable, "-c", CHILD, str(clients), str(cohort), str(rounds), str(out), partition, engine]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def take_stock(out) -> tuple[int, int]:
    """How many clients have state in the folder of a run, and the bytes of one; the folder, which is large, goes."""
    states = newest_states(out / "checkpoints" / "clients")
    found = len(states), max(state.length for state in states.values())
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


@pytest.mark.parametrize("engine", ["stacked", pytest.param("sequential", marks=pytest.mark.slow)])
def test_a_million_clients_need_no_more_memory_and_time_than_a_thousand(tmp_path, engine):
    """Same cohort, rounds and steps; clients draw their samples when they are chosen."""
    few, many = (run(clients, 100, 3, tmp_path / f"{clients}", "drawn", engine) for clients in (1_000, 1_000_000))
    (some, _), (more, size) = (take_stock(tmp_path / f"{clients}") for clients in (1_000, 1_000_000))
    assert 250 < some < more == 300
    assert size > STATE
    assert many["peak"] < 1.2 * few["peak"]
    assert many["resident"][-1] < 1.2 * few["resident"][-1]
    # What the allocator keeps of the large tensors of a group differs more than the populations do.
    assert engine == "stacked" or many["peak"] - few["peak"] < ROOM
    assert min(many["seconds"]) < 1.5 * min(few["seconds"])


def test_choosing_a_cohort_costs_what_the_cohort_costs():
    """A hundred of a million, for many rounds: no array as long as the population is made."""
    eligible = np.arange(1_000_000)
    tracemalloc.start()
    cohorts = list(cohorts_of("uniform", eligible, 100, rounds=50))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500_000
    assert all(len(set(cohort.tolist())) == 100 for cohort in cohorts)
    assert max(int(cohort.max()) for cohort in cohorts) > 900_000


class Stop(RunListener):
    """Interrupts a run after a round."""

    def on_round(self, record):
        if record["round"] == 2:
            raise KeyboardInterrupt


def test_a_run_over_a_million_clients_resumes_as_if_nothing_had_happened(job, undisturbed, outcome_of, tmp_path):
    million = job(partition="drawn", num_clients=1_000_000, clients_per_round=5, rounds=4, method="scaffold")
    with pytest.raises(KeyboardInterrupt):
        million.run(tmp_path / "run", listener=Stop())
    million.run(tmp_path / "run", resume=True)
    assert outcome_of(tmp_path / "run") == undisturbed(million)
    stored = json.loads((tmp_path / "run" / "partition.json").read_text())
    assert stored["name"] == "drawn"
    assert len(stored["digest"]) == 64
    assert stored["counts"] is None
