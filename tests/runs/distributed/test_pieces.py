"""What a rank decides by itself, without any other process."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch

from benchmarks.benchmark import Options
from benchmarks.workloads import scaling
from fedblade.core.disk_store import DiskStore
from fedblade.core.errors import Misconfigured, Unsupported
from fedblade.core.state import MemoryStore
from fedblade.engines.ranks import launched
from fedblade.results import RunDirectory
from fedblade.runs.distributed import _shared_run as _distributed
from fedblade.runs.distributed._process import signals_delayed, threads_for
from fedblade.runs.distributed._shared_run import refuse_ranks
from fedblade.runs.distributed._store import describe_store, is_per_rank, open_store
from support.small_federation import configure

VARIABLES = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def rank(number=0, world=2):
    return SimpleNamespace(rank=number, world=world, local_rank=number, local_world=world, leads=number == 0)


@pytest.fixture
def launch(monkeypatch):
    """Pretend that torchrun started this process."""

    def pretend(**changes):
        for name, value in (VARIABLES | changes).items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    return pretend


def test_one_process_is_not_several(launch):
    assert not launched()
    launch(WORLD_SIZE="1")
    assert not launched()
    launch(RANK=None)
    assert not launched()
    launch()
    assert launched()


def test_what_is_one_processs_work_is_refused(launch):
    refuse_ranks()
    launch()
    with pytest.raises(Unsupported, match="without torchrun"):
        refuse_ranks()


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(8, 2, 4), (8, 3, 2), (2, 4, 1)])
def test_cores_are_divided_among_the_ranks_of_a_machine(monkeypatch, cores, ranks, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    before = torch.get_num_threads()
    with threads_for(rank(world=ranks)):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == before


def test_one_process_keeps_its_threads():
    before = torch.get_num_threads()
    with threads_for(None):
        assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("engine", "order", "chosen"),
    [
        ("auto", "any", "auto"),
        ("distributed", "any", "auto"),
        ("stacked", "any", "stacked"),
        ("auto", "fixed", "sequential"),
        ("distributed", "fixed", "sequential"),
        ("sequential", "fixed", "sequential"),
    ],
)
def test_the_engine_of_a_rank(engine, order, chosen):
    config = configure(engine=engine, **{"distributed.order": order})
    inner = _distributed._config_of_rank(rank(), config)
    assert inner.general.engine == chosen
    assert inner.general.device == "cpu"
    assert config.general.engine == engine


def test_ranks_need_a_gpu_each(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert _distributed._device_of_rank(rank(1), "auto") == "cuda:1"
    assert _distributed._device_of_rank(rank(1), "cpu") == "cpu"
    with pytest.raises(Misconfigured, match="one GPU for all ranks"):
        _distributed._device_of_rank(rank(1), "cuda:0")
    with pytest.raises(Misconfigured, match=r"3 ranks .* 2 GPU"):
        _distributed._device_of_rank(rank(1, world=3), "cuda")


def test_a_signal_waits_until_all_is_saved():
    order = []
    before = signal.signal(signal.SIGTERM, lambda *_: order.append("signal"))
    try:
        with signals_delayed(rank()):
            signal.raise_signal(signal.SIGTERM)
            order.append("saved")
        with signals_delayed(None):
            signal.raise_signal(signal.SIGTERM)
            order.append("alone")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert order == ["saved", "signal", "signal", "alone"]


@pytest.mark.parametrize(
    ("store", "folder", "name"),
    [("shared", "clients", "000000-1-0.states"), ("rank", "clients-rank1", "000000-0-0.states")],
)
def test_where_states_are(tmp_path, store, folder, name):
    config, directory = configure(**{"distributed.store": store}), RunDirectory(tmp_path)
    directory.checkpoints.mkdir()
    found = open_store(rank(1), config, directory)
    assert isinstance(found, DiskStore)
    found.put(7, 0, {"c": {"w": torch.ones(2)}})
    found.flush()
    assert [path.name for path in (tmp_path / "checkpoints" / folder).iterdir()] == [name]
    assert is_per_rank(config, directory) == (store == "rank")


def test_states_in_memory_stay_with_their_rank():
    config = configure()
    assert isinstance(open_store(rank(1), config, None), MemoryStore)
    assert is_per_rank(config, None)
    assert describe_store(rank(), config, None) == {}


def test_another_number_of_ranks_is_refused_where_each_has_its_states(tmp_path):
    config, directory = configure(**{"distributed.store": "rank"}), RunDirectory(tmp_path)
    directory.checkpoints.mkdir()
    first = describe_store(rank(world=2), config, directory)
    assert describe_store(rank(world=2), config, directory) == first
    with pytest.raises(Misconfigured, match="begun with 2 ranks"):
        describe_store(rank(world=3), config, directory)


def test_a_run_of_one_process_has_no_states_of_ranks(tmp_path):
    config, directory = configure(**{"distributed.store": "rank"}), RunDirectory(tmp_path)
    directory.checkpoints.mkdir()
    directory.append("history.jsonl", {"round": 1})
    with pytest.raises(Misconfigured, match="begun without ranks"):
        describe_store(rank(), config, directory)


@pytest.mark.slow
def test_scaling_is_measured():
    ((label, found),) = scaling.measure(Options(repeat=1), model="mlp", clients=2, rounds=2)
    assert label == scaling.TWO.label
    assert found.value == pytest.approx(found.medians["one process s/round"] / found.medians["two processes s/round"])
