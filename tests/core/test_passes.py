from types import SimpleNamespace

import pytest
import torch

from fedblade.core.one_client import OneClient
from fedblade.core.passes import PassData, PassModel, batch_of_one_model, chunks
from fedblade.core.sums import DataPass
from fedblade.payloads import CLASS_FEATURES
from support.small_federation import BATCH_NORM, build, tasks


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [1]), (127, [127]), (128, [128]), (129, [129]), (130, [128, 2]), (257, [128, 129]), (300, [128, 128, 44])],
)
def test_no_batch_of_one_is_left_behind(count, sizes):
    parts = chunks(torch.arange(count))
    assert [len(part) for part in parts] == sizes
    assert torch.equal(torch.cat(parts), torch.arange(count))


def test_passes_add_up_over_batches_in_float64():
    setup = build(dtype="float32")
    samples, network, start = setup.problem.samples, setup.problem.network, setup.start
    indices = torch.arange(len(samples))
    model = PassModel(start.params, start.buffers, start.fixed, counts=torch.zeros(5))
    client = OneClient(setup.problem, pass_batch=len(indices) // 3)
    total = client.run_passes([CLASS_FEATURES], model, PassData(samples, [indices]))["class_features"]
    features = network.features(start.params, start.buffers, samples.batch(indices)[0], training=False).double()
    assert total["sum"].dtype == torch.float64
    for label in range(5):
        mine = features[samples.labels == label]
        assert total["count"][label] == len(mine)
        torch.testing.assert_close(total["sum"][label], mine.sum(0), rtol=0, atol=1e-4)


def sizes_of_batches(network, shape, number):
    """The number of samples in each batch of a pass over `number` samples of this shape."""
    inputs = torch.zeros(1, *shape)
    samples = SimpleNamespace(inputs=inputs, labels=inputs[:, 0], dtype=torch.float32)
    return [len(part) for part in chunks(torch.arange(number), batch_of_one_model(network, samples))]


def test_small_inputs_pass_in_larger_batches_unless_the_batch_is_part_of_the_result():
    network = build(**BATCH_NORM).problem.network
    assert sizes_of_batches(network, (1, 8, 8), 600) == [512, 88]
    assert sizes_of_batches(network, (3, 32, 32), 600) == [128, 128, 128, 128, 88]
    of_batch = SimpleNamespace(takes_batch_statistics=True)
    assert sizes_of_batches(of_batch, (1, 8, 8), 600) == [128, 128, 128, 128, 88]


def test_a_pass_uses_running_statistics_and_leaves_them():
    setup = build(**BATCH_NORM)
    start, network = setup.start, setup.problem.network
    buffers = {n: v.clone() for n, v in start.buffers.items()}
    model = PassModel(start.params, buffers, start.fixed, counts=torch.zeros(5))
    seen = []
    look = DataPass("look", lambda view: seen.append(view.features) or {"n": torch.ones(())})
    OneClient(setup.problem).run_passes([look], model, PassData(setup.problem.samples, [tasks(setup)[0].indices]))
    assert all(torch.equal(buffers[name], leaf) for name, leaf in start.buffers.items())
    inputs, _ = setup.problem.samples.batch(tasks(setup)[0].indices)
    assert torch.equal(seen[0], network.features(start.params, start.buffers, inputs, training=False))
    assert not seen[0].requires_grad


def test_several_passes_share_one_forward():
    setup = build()
    calls = []
    forward = setup.problem.network.body.register_forward_hook(lambda *_: calls.append(1))
    passes = [DataPass(name, lambda view: {"n": view.labels.sum()}) for name in ("a", "b")]
    model = PassModel(setup.start.params, setup.start.buffers, setup.start.fixed, counts=torch.zeros(5))
    totals = OneClient(setup.problem).run_passes(passes, model, PassData(setup.problem.samples, [torch.arange(10)]))
    forward.remove()
    assert calls == [1]
    assert totals["a"] == totals["b"] == {"n": torch.tensor(20.0, dtype=torch.float64)}


def test_no_pass_no_forward():
    setup = build()
    calls = []
    forward = setup.problem.network.body.register_forward_hook(lambda *_: calls.append(1))
    model = PassModel(setup.start.params, setup.start.buffers, setup.start.fixed, counts=torch.zeros(5))
    assert OneClient(setup.problem).run_passes([], model, PassData(setup.problem.samples, [torch.arange(10)])) == {}
    forward.remove()
    assert calls == []
