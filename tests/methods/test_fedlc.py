"""FedLC."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.methods.fedlc import fedlc
from support.small_federation import assert_close, assert_different, assert_same_run, build, tasks, train

IID = {"partition": "iid"}
ONE_CLASS = {"partition": "shards", "partition.shards_per_client": 1, "num_clients": 5, "clients_per_round": 5}


def reference(setup, task, tau, denominator):
    """Autograd of the ratio of exponentials over the classes held, sample by sample."""
    x, y, counts = setup.problem.samples.inputs, setup.problem.samples.labels, task.counts.tolist()
    held = [c for c, count in enumerate(counts) if count > 0]

    def loss(params, indices):
        z = plain.features(plain.MLP, params, {}, x[indices], training=True)
        logits, parts = z @ params["head.weight"].T + params["head.bias"], []
        for row, label in zip(logits, y[indices].tolist(), strict=True):
            powers = {c: (row[c] - tau * counts[c] ** -0.25).exp() for c in held}
            others = [power for c, power in powers.items() if denominator == "standard" or c != label]
            parts.append(-(powers[label] / sum(others)).log())
        return torch.stack(parts).mean()

    return plain.local_sgd(loss, setup.start.params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)


def local(setup, task):
    return local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))[0].params


@pytest.mark.parametrize("denominator", ["standard", "exclude_true"])
@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0])
def test_training_follows_the_calibrated_ratio(tau, denominator):
    """On a client that holds some classes and lacks others."""
    setup = build("fedlc", tau_lc=tau, denominator=denominator, **{"local.epochs": 1})
    task = next(task for task in tasks(setup) if (task.counts == 0).any() and (task.counts > 0).sum() > 1)
    assert_close(local(setup, task), reference(setup, task, tau, denominator), 1e-11)
    with pytest.raises(AssertionError, match="body"):
        assert_close(local(setup, task), reference(setup, task, tau + 0.1, denominator), 1e-6)


def test_no_margin_and_every_class_is_fedavg():
    ran = train("fedlc", tau_lc=0.0, **IID)
    assert all((task.counts > 0).all() for task in tasks(ran.setup))
    assert_same_run(ran, train("fedavg", **IID))


def test_equal_counts_are_cross_entropy_over_the_classes_held():
    """A client of equal counts does not notice the margin, whatever it is."""
    setups = [build("fedlc", tau_lc=tau) for tau in (0.0, 10.0)]
    task = next(task for task in tasks(setups[0]) if (task.counts == 0).any() and (task.counts > 0).sum() > 1)
    task = replace(task, counts=torch.where(task.counts > 0, 7, 0))
    none, large = (local(setup, task) for setup in setups)
    assert_close(none, large, 1e-12)
    assert_close(none, reference(setups[0], task, 0.0, "standard"), 1e-11)
    assert_different(none, local(build("fedavg"), task))


@pytest.mark.parametrize("denominator", ["standard", "exclude_true"])
def test_losses_are_finite_where_classes_are_missing(denominator):
    """A run stops at the first loss that is not; a client of one class has nothing to learn."""
    rows = train("fedlc", denominator=denominator, tau_lc=10.0, **ONE_CLASS).history
    assert [row["loss_supervised"] for row in rows] == [0.0, 0.0]


def test_only_the_model_travels_and_counts_stay():
    cost = [(row["bytes_up"], row["bytes_down"]) for row in train("fedlc").history]
    assert cost == [(row["bytes_up"], row["bytes_down"]) for row in train("fedavg").history]


def test_the_defaults():
    assert_same_run(train("fedlc"), train("fedlc", tau_lc=1.0, denominator="standard"))


def test_nonsense_is_refused():
    with pytest.raises(Misconfigured, match="unknown denominator"):
        fedlc(denominator="without")
