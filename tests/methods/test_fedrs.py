"""FedRS."""

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from support.small_federation import assert_close, assert_different, assert_same_run, build, tasks, train


def reference(setup, task, scale):
    """Autograd of the cross-entropy of scaled logits, bias included; `scale` is α, or a factor for each class."""
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels
    held = [1.0 if count > 0 else scale for count in task.counts.tolist()]
    factors = torch.tensor(scale if isinstance(scale, list) else held, dtype=x.dtype)

    def loss(params, indices):
        z = plain.features(plain.MLP, params, {}, x[indices], training=True)
        logits = z @ params["head.weight"].T + params["head.bias"]
        return torch.nn.functional.cross_entropy(factors * logits, y[indices])

    return plain.local_sgd(loss, setup.start.params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)


def local(setup, task):
    return local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))[0].params


@pytest.mark.parametrize("alpha", [0.5, 0.0, 0.9])
def test_training_follows_the_scaled_logits(alpha):
    setup = build("fedrs", alpha_rs=alpha)
    missing = [int((task.counts == 0).sum()) for task in tasks(setup)]
    assert max(missing) > 0
    for task in tasks(setup):
        assert_close(local(setup, task), reference(setup, task, alpha), 1e-11)
    task = tasks(setup)[missing.index(max(missing))]
    with pytest.raises(AssertionError, match="body"):
        assert_close(local(setup, task), reference(setup, task, alpha + 0.01), 1e-6)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_alpha_one_is_fedavg(norm):
    """A knob at its neutral value gives the simpler method, bit for bit."""
    overrides = {"model.norm": norm}
    assert_same_run(train("fedrs", alpha_rs=1.0, **overrides), train("fedavg", **overrides))


def test_with_every_class_present_it_is_fedavg():
    iid = {"partition": "iid"}
    ran = train("fedrs", **iid)
    assert all((task.counts > 0).all() for task in tasks(ran.setup))
    assert_same_run(ran, train("fedavg", **iid))


def test_clients_of_one_class_train_and_are_not_fedavgs():
    """All logits but one are scaled, and the loss is still defined."""
    shards = {"partition": "shards", "partition.shards_per_client": 1, "num_clients": 5, "clients_per_round": 5}
    ran, plain_run = train("fedrs", **shards), train("fedavg", **shards)
    assert all(int((task.counts > 0).sum()) == 1 for task in tasks(ran.setup))
    assert_different(ran.state.params, plain_run.state.params)
    assert_same_run(train("fedrs", alpha_rs=0.5, **shards), ran)


def test_only_the_model_travels():
    cost = [(row["bytes_up"], row["bytes_down"]) for row in train("fedrs").history]
    assert cost == [(row["bytes_up"], row["bytes_down"]) for row in train("fedavg").history]


def test_the_weights_of_the_authors_follow_the_shares():
    """ρ_c = α + (1−α)·p_c/max p, also for classes the client holds; α = 1 is FedAvg."""
    setup = build("fedrs", alpha_rs=0.3, weights="authors")
    for task in tasks(setup):
        counts = task.counts.tolist()
        factors = [0.3 + 0.7 * count / max(counts) for count in counts]
        assert_close(local(setup, task), reference(setup, task, factors), 1e-11)
    assert_different(local(setup, task), local(build("fedrs", alpha_rs=0.3), task))
    assert_same_run(train("fedrs", alpha_rs=1.0, weights="authors"), train("fedavg"))
