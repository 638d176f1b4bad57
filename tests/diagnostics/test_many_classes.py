"""Metrics of more classes than tables are kept for, against slow computations on stored features."""

import math

import numpy as np
import pytest
import torch

from fedblade.core.registry import metrics as registry
from fedblade.core.views import HeadOutput, StepView
from fedblade.diagnostics import Moments, nc1, nc2
from fedblade.diagnostics._batch import MOST_CLASSES
from fedblade.heads import LinearHead

CLASSES, BLOCK, DIM, SAMPLES = 250, 3, 5, 900


def draw(seed=0):
    """Features, labels and logits; class 7 has no sample, and so has block 20, the classes 60 to 62."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
    labels[torch.isin(labels, torch.tensor([7, 60, 61, 62]))] = 5
    features = torch.randn(SAMPLES, DIM, generator=generator, dtype=torch.float64) + labels[:, None] / 50
    return features, labels, torch.randn(SAMPLES, CLASSES, generator=generator, dtype=torch.float64)


def view_of(features, labels, logits, mask=None):
    nothing = {name: {} for name in ("params", "anchor", "fixed", "server", "client")}
    output = HeadOutput(logits, features)
    view = {"head": LinearHead(), "features": features, "output": output, "labels": labels, "round": 0, "mask": mask}
    return StepView(**nothing, **view, counts=torch.ones(CLASSES))


def totals_of(name, *given):
    """The totals over batches of which the last is padded with NaN and with a label that there is not."""
    totals = {}
    for data_pass in registry.get(name).make().passes:
        trees = []
        for start in range(0, SAMPLES, 128):
            parts = [rows[start : start + 128] for rows in given]
            padding = 128 - len(parts[0])
            mask = torch.cat((torch.ones(len(parts[0])), torch.zeros(padding))) if padding else None
            fills = (math.nan, -1, math.nan)
            padded = [
                torch.cat((rows, rows.new_full((padding, *rows.shape[1:]), fill)))
                for rows, fill in zip(parts, fills, strict=True)
            ]
            trees.append(data_pass.of(view_of(*padded, mask)))
        totals[data_pass.name] = {key: sum(tree[key] for tree in trees) for key in trees[0]}
    return totals


def pooled_mean(table, row, column):
    """The mean of the known entries of a block, without the diagonal of the whole table."""
    rows, columns = (range(BLOCK * at, min(BLOCK * at + BLOCK, CLASSES)) for at in (row, column))
    cells = [table[i, j] for i in rows for j in columns if i != j and not np.isnan(table[i, j])]
    return sum(cells) / len(cells) if cells else None


def test_pooled_confusion_is_counted_from_the_answers_and_accuracies_stay_exact():
    features, labels, logits = draw()
    logits[torch.arange(SAMPLES), labels] += 2.0
    found = registry.get("classes").make().finish(totals_of("classes", features, labels, logits))
    answers = logits.argmax(1)
    expected = [[0] * 84 for _ in range(84)]
    for true, answer in zip(labels.tolist(), answers.tolist(), strict=True):
        expected[true // BLOCK][answer // BLOCK] += 1
    right = [(answers == labels)[labels == c].double() for c in range(CLASSES)]
    accuracy = [100 * float(of.mean()) if len(of) else None for of in right]
    assert found["confusion_pooled"] == {"classes": CLASSES, "block": BLOCK, "values": expected}
    assert found["class_accuracy"] == pytest.approx(accuracy)
    assert found["worst_class_accuracy"] == min(percent for percent in accuracy if percent is not None)
    assert found.keys() == {"confusion_pooled", "class_accuracy", "worst_class_accuracy"}


def test_pooled_cosines_are_means_over_pairs_of_different_classes():
    features, labels, logits = draw()
    found = registry.get("class_means").make().finish(totals_of("class_means", features, labels, logits))
    z, y = features.numpy(), labels.numpy()
    means = {c: z[y == c].mean(0) for c in sorted(set(y))}
    centre = np.mean(list(means.values()), axis=0)
    table = np.full((CLASSES, CLASSES), np.nan)
    for i, a in means.items():
        for j, b in means.items():
            table[i, j] = (a - centre) @ (b - centre) / np.linalg.norm(a - centre) / np.linalg.norm(b - centre)
    pooled = found.pop("class_cosines_pooled")
    assert found == {}
    assert (pooled["classes"], pooled["block"], len(pooled["values"])) == (CLASSES, BLOCK, 84)
    for row in range(84):
        expected = [pooled_mean(table, row, column) for column in range(84)]
        assert [value is None for value in pooled["values"][row]] == [value is None for value in expected]
        known = [pair for pair in zip(pooled["values"][row], expected, strict=True) if None not in pair]
        assert [a for a, _ in known] == pytest.approx([b for _, b in known], abs=1e-10)
    assert pooled["values"][20] == [None] * 84


def test_sums_by_class_of_many_clients_at_once_are_those_of_each_alone():
    drawn = [draw(seed) for seed in range(3)]
    given = [torch.stack(rows) for rows in zip(*drawn, strict=True)]
    mask = torch.stack([(torch.arange(SAMPLES) < keep).double() for keep in (SAMPLES, 200, 3)])
    for name in ("classes", "class_means", "nc1"):
        for data_pass in registry.get(name).make().passes:
            together = torch.func.vmap(lambda *rows, of=data_pass.of: of(view_of(*rows)))(*given, mask)
            for client, rows in enumerate(drawn):
                real = mask[client] > 0
                alone = data_pass.of(view_of(*(column[real] for column in rows)))
                for key, leaf in alone.items():
                    torch.testing.assert_close(together[key][client], leaf, rtol=1e-10, atol=1e-10)


def test_moments_by_class_are_sums_over_the_samples_of_a_class():
    features, labels, _ = draw()
    moments = Moments.of(features, labels, CLASSES)
    assert CLASSES > MOST_CLASSES
    for c in (0, 5, 7, 249):
        rows = features[labels == c]
        assert int(moments.class_count[c]) == len(rows)
        torch.testing.assert_close(moments.class_total[c], rows.sum(0))
        torch.testing.assert_close(moments.class_unit[c], (rows / rows.norm(dim=1, keepdim=True)).sum(0))


@pytest.mark.parametrize("classes", [4, 60, 1100])
def test_collapse_of_fewer_and_of_more_classes_than_features(classes):
    """NC1 uses the smaller Gram matrix, NC2 some rows at a time; both are compared with their formulas."""
    generator = np.random.default_rng(classes)
    labels = np.repeat(np.arange(classes), 2)
    z = generator.normal(size=(classes, DIM))[labels] + 0.3 * generator.normal(size=(2 * classes, DIM))
    means = z.reshape(classes, 2, DIM).mean(1)
    centred = means - means.mean(0)
    within = sum(np.outer(row, row) for row in z - means[labels]) / len(z)
    between = centred.T @ centred / classes
    units = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    target = (np.eye(classes) * classes - 1) / (classes - 1)
    gap, gram = units @ units.T - target, centred @ centred.T
    normalised = gram / np.linalg.norm(gram) - target / np.linalg.norm(target)
    off_diagonal = np.abs(gap[~np.eye(classes, dtype=bool)])
    one, two = (measure(torch.from_numpy(z), torch.from_numpy(labels)) for measure in (nc1, nc2))
    assert one["nc1_pinv"] == pytest.approx(np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / classes)
    assert two["nc2_fro"] == pytest.approx(np.linalg.norm(gap))
    assert two["nc2_normalised"] == pytest.approx(np.linalg.norm(normalised))
    assert two["nc2_equiangle"] == pytest.approx(off_diagonal.mean())


def test_variances_are_the_diagonal_of_the_covariance():
    for offset in (0.0, 1e4, 1e12):
        parts = [draw(seed)[0] + offset for seed in range(3)]
        labels = torch.zeros(SAMPLES, dtype=torch.int64)
        moments = Moments.of(parts[0], labels, 1) + Moments.of(parts[1], labels, 1) + Moments.of(parts[2], labels, 1)
        assert torch.equal(moments.variances(), moments.covariance().diagonal())
