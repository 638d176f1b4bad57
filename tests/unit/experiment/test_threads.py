"""Small networks train on one thread, large ones on all, and the caller's number comes back."""

import pytest
import torch

from fedblade.experiment import load_config
from fedblade.experiment._setup import prepare
from fedblade.experiment._threads import fitting_threads, step_operations


@pytest.fixture
def three_threads():
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


def test_operations_are_counted_by_hand():
    setup = prepare(load_config(None, {"model": "small_cnn", "batch_size": 32})[0])
    products = 16 * 8 * 8 * 9 + 32 * 4 * 4 * 16 * 9 + 128 * 32 * 2 * 2
    assert step_operations(setup) == 6 * products * 32


def test_a_small_network_gets_one_thread_and_the_callers_number_returns(three_threads):
    with fitting_threads(prepare(load_config(None, {})[0])):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_a_large_network_keeps_all_threads(three_threads):
    with fitting_threads(prepare(load_config(None, {"model": "resnet20", "batch_size": 64})[0])):
        assert torch.get_num_threads() == 3


def test_the_callers_number_returns_after_a_failure(three_threads):
    with pytest.raises(RuntimeError, match="broken"), fitting_threads(prepare(load_config(None, {})[0])):
        raise RuntimeError("broken")
    assert torch.get_num_threads() == 3
