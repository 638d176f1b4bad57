"""States are written while the run goes on, and nobody notices."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fedblade.core import write_behind
from fedblade.core.errors import RunFailed
from fedblade.core.files import write_atomic
from fedblade.core.state import MemoryStore
from fedblade.core.write_behind import WriteBehind


def state(value):
    return {"local": {"w": torch.tensor([float(value)])}}


class Held(MemoryStore):
    """A disk that writes when it is told to, and notes what it wrote."""

    def __init__(self):
        super().__init__()
        self.go, self.written = threading.Event(), []

    def put(self, client, round_, state):
        assert self.go.wait(20)
        super().put(client, round_, state)
        self.written.append((client, round_))


class Full(MemoryStore):
    """A disk without space."""

    def put(self, client, round_, state):
        raise RunFailed("no space left")


def test_a_put_returns_before_the_state_is_written_and_settling_waits():
    disk = Held()
    store = WriteBehind(disk)
    for client in range(6):
        store.put(client, 0, state(client))
    assert disk.written == []
    disk.go.set()
    store.settle()
    assert sorted(disk.written) == [(client, 0) for client in range(6)]


def test_who_reads_waits_for_its_own_client():
    disk = Held()
    store = WriteBehind(disk)
    store.put(3, 0, state(1))
    timer = threading.Timer(0.05, disk.go.set)
    timer.start()
    assert store.get(3, 1)["local"]["w"].item() == 1.0


def test_a_client_is_written_in_the_order_of_its_rounds():
    disk = Held()
    disk.go.set()
    store = WriteBehind(disk)
    for round_ in range(30):
        store.put(0, round_, state(round_))
    store.settle()
    assert disk.written == [(0, round_) for round_ in range(30)]


def test_no_more_than_so_many_states_wait_in_memory(monkeypatch):
    monkeypatch.setattr(write_behind, "MOST_WAITING", 3)
    disk = Held()
    store = WriteBehind(disk)
    for client in range(3):
        store.put(client, 0, state(client))
    timer = threading.Timer(0.05, disk.go.set)
    timer.start()
    store.put(3, 0, state(3))
    assert (0, 0) in disk.written


@pytest.mark.parametrize("then", ["settle", "get", "put"])
def test_a_disk_that_is_full_is_told_by_the_next_call_that_waits(then):
    store = WriteBehind(Full())
    store.put(0, 0, state(1))
    calls = {"settle": store.settle, "get": lambda: store.get(0, 1), "put": lambda: store.put(0, 1, state(2))}
    with pytest.raises(RunFailed, match="no space left"):
        calls[then]()


def test_files_written_by_threads_leave_the_umask_alone(tmp_path):
    before = os.umask(0o027)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: write_atomic(tmp_path / f"{i}", b"x"), range(200)))
        left = os.umask(0o027)
    finally:
        os.umask(before)
    assert left == 0o027
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}
