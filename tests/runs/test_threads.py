"""Small steps run on one thread, large ones on all, and the caller's number comes back; freed memory is kept."""

import ctypes
import platform

import pytest
import torch

from fedblade.runs import load_config, prepare
from fedblade.runs._memory import keep_freed_memory
from fedblade.runs._operations import step_operations
from fedblade.runs._threads import fitting_threads


@pytest.fixture
def three_threads():
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


def test_operations_are_counted_by_hand():
    setup = prepare(load_config(None, {"model": "small_cnn", "batch_size": 32})[0])
    products = 16 * 8 * 8 * 9 + 32 * 4 * 4 * 16 * 9 + 128 * 32 * 2 * 2
    assert step_operations(setup.problem, setup.start, 32) == 6 * products * 32


def test_a_small_network_gets_one_thread_and_the_callers_number_returns(three_threads):
    with fitting_threads(prepare(load_config(None, {})[0])):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(
    ("engine", "together", "threads"), [("sequential", 20, 1), ("stacked", 10, 1), ("stacked", 20, 2)]
)
def test_clients_side_by_side_are_one_large_step(three_threads, engine, together, threads):
    config = {"engine": engine, "num_clients": 20, "clients_per_round": together, "batch_size": 32}
    with fitting_threads(prepare(load_config(None, config)[0])):
        assert torch.get_num_threads() == threads


def test_a_large_network_keeps_all_threads(three_threads):
    with fitting_threads(prepare(load_config(None, {"model": "resnet20", "batch_size": 64})[0])):
        assert torch.get_num_threads() == 3


def test_the_callers_number_returns_after_a_failure(three_threads):
    with pytest.raises(RuntimeError, match="broken"), fitting_threads(prepare(load_config(None, {})[0])):
        raise RuntimeError("broken")
    assert torch.get_num_threads() == 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
@pytest.mark.parametrize("of_any_size", [False, True])
def test_glibc_takes_the_thresholds(of_any_size):
    assert keep_freed_memory(of_any_size=of_any_size)


@pytest.mark.parametrize("library", [object(), OSError("none"), TypeError("none")])
def test_another_library_is_left_alone(monkeypatch, library):
    def found(_name):
        if isinstance(library, Exception):
            raise library
        return library

    monkeypatch.setattr(ctypes, "CDLL", found)
    assert not keep_freed_memory()
