"""FedUV."""

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.views import HeadOutput, StepView
from fedblade.losses import prediction_variance
from fedblade.methods.feduv import ScaledVariance
from support.small_federation import (
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    tasks,
    train,
)


def reference(setup, task, lambda_v, mu_u):
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels

    def loss(params, indices):
        z = plain.features(plain.MLP, params, {}, x[indices], training=True)
        logits = z @ params["head.weight"].T + params["head.bias"]
        total = torch.nn.functional.cross_entropy(logits, y[indices])
        if len(indices) == 1:
            return total
        spread = torch.softmax(logits, 1).std(0)
        total = total + lambda_v * sum((5**-0.5 - each).clamp(min=0) for each in spread) / 5
        pairs = [((z[i] - z[j]) ** 2).sum() for i in range(len(z)) for j in range(i)]
        width = torch.stack([each for each in pairs if each > 0]).median()
        return total + mu_u * sum((-each / width).exp() for each in pairs) / len(pairs)

    return plain.local_sgd(loss, setup.start.params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)


def local(setup, task):
    return local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))[0].params


@pytest.mark.parametrize(("lambda_v", "mu_u"), [("auto", 0.5), (2.5, 0.0), (0.3, 2.0)])
def test_training_follows_its_formula(lambda_v, mu_u):
    """With 5 classes "auto" is 1.25."""
    setup = build("feduv", lambda_v=lambda_v, mu_u=mu_u)
    task, number = tasks(setup)[2], 1.25 if lambda_v == "auto" else lambda_v
    assert_close(local(setup, task), reference(setup, task, number, mu_u), 1e-10)
    for other in ((number + 0.01, mu_u), (number, mu_u + 0.01)):
        with pytest.raises(AssertionError, match="body"):
            assert_close(local(setup, task), reference(setup, task, *other), 1e-6)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_without_weights_it_is_fedavg(norm):
    """A weight of zero gives the simpler method, bit for bit."""
    overrides = {"model.norm": norm}
    assert_same_run(train("feduv", lambda_v=0.0, mu_u=0.0, **overrides), train("fedavg", **overrides))


def test_either_term_changes_the_model():
    alone = train("fedavg").state.params
    for knobs in ({"lambda_v": 0.0}, {"mu_u": 0.0}):
        assert_different(train("feduv", **knobs).state.params, alone)


def test_the_weight_follows_the_number_of_classes():
    """Authors' 2.5 for 10 classes, C/4 for C; bit for bit the number that could be given."""
    assert_same_bits(train("feduv").state.params, train("feduv", lambda_v=1.25).state.params)


def view_of(logits, mask=None):
    fields = dict.fromkeys(StepView.__dataclass_fields__)
    return StepView(**{**fields, "output": HeadOutput(logits, logits), "mask": mask})


@pytest.mark.parametrize(("classes", "weight"), [(10, 2.5), (4, 1.0), (100, 25.0)])
def test_the_scaled_variance_under_masks_and_vmap(classes, weight):
    logits = torch.randn(3, 6, classes, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    mask = torch.tensor([1.0, 1, 1, 1, 0, 0])
    term = ScaledVariance()
    for rows in logits:
        assert torch.equal(term(view_of(rows)).value, weight * prediction_variance(rows))
        garbage = torch.cat((rows[:4], torch.full_like(rows[4:], torch.nan)))
        torch.testing.assert_close(term(view_of(garbage, mask)).value, term(view_of(rows[:4])).value)
    stacked = torch.func.vmap(lambda rows: term(view_of(rows)).value)(logits)
    torch.testing.assert_close(stacked, torch.stack([term(view_of(rows)).value for rows in logits]))


def test_one_sure_prediction_of_each_class_costs_nothing():
    assert ScaledVariance()(view_of(1e4 * torch.eye(8, dtype=torch.float64))).value.item() == pytest.approx(
        0, abs=1e-12
    )


def test_batches_of_one_sample_are_fedavgs():
    single = {"local.batch_size": 1, "local.epochs": 1}
    ran = train("feduv", **single)
    assert_same_bits(ran.state.params, train("fedavg", **single).state.params)
    assert all(row["loss_variance"] == row["loss_uniformity"] == 0 for row in ran.history)


def test_only_the_model_travels():
    cost = [(row["bytes_up"], row["bytes_down"]) for row in train("feduv").history]
    assert cost == [(row["bytes_up"], row["bytes_down"]) for row in train("fedavg").history]
