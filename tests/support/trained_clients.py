"""Clients after local training, made by hand in float64, and what a metric finds of them."""

import math
from dataclasses import dataclass, field, replace

import torch

from fedblade.core.metric import Metric
from fedblade.core.registry import metrics
from fedblade.core.streams import Streams
from fedblade.core.sums import DataPass, Sums, contributions
from fedblade.core.tree import tree_map
from fedblade.core.views import EndView, Head, StepView, Teacher, TeacherOutput
from fedblade.heads import LinearHead

INPUTS, DIM, CLASSES = 4, 6, 5
HELD = ([7, 2, 0, 0, 0], [0, 3, 1, 4, 0], [0, 0, 0, 5, 0], [1, 1, 1, 1, 1])
"""Samples of each class that the usual clients hold; nobody but the last holds the last class."""


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass(frozen=True)
class Client:
    """A trained model, and the samples it was trained on."""

    params: dict
    inputs: torch.Tensor
    labels: torch.Tensor
    erased: int = -1

    @property
    def counts(self):
        return torch.bincount(self.labels, minlength=CLASSES)


@dataclass(frozen=True)
class Federation:
    """Clients, the model they received, the model that came of theirs, and test samples."""

    head: Head
    fixed: dict
    anchor: dict
    after: dict
    clients: list
    inputs: torch.Tensor
    labels: torch.Tensor
    shared: frozenset = field(default_factory=frozenset)


def federation(head=None, held=HELD, seed=0, test=23):
    """A body of one layer under `head`; every client's parameters differ from those received by noise."""
    head = head or LinearHead()
    made = head.init(DIM, CLASSES, Streams(seed))
    anchor = {"body.weight": draw(DIM, INPUTS, seed=seed)} | tree_map(torch.Tensor.double, made.params)
    fixed = tree_map(torch.Tensor.double, made.fixed)
    clients = []
    for place, row in enumerate(held):
        labels = torch.repeat_interleave(torch.arange(CLASSES), torch.tensor(row))
        clients.append(Client(moved(anchor, 10 * seed + place + 1), draw(len(labels), INPUTS, seed=place + 50), labels))
    inputs, labels = draw(test, INPUTS, seed=seed + 99), torch.arange(test) % CLASSES
    return Federation(head, fixed, anchor, moved(anchor, seed + 77), clients, inputs, labels, frozenset(anchor))


def moved(params, seed):
    return {name: leaf + 0.5 * draw(*leaf.shape, seed=seed + i) for i, (name, leaf) in enumerate(params.items())}


def features(params, inputs):
    return torch.tanh(inputs @ params["body.weight"].mT)


def projected(fed, params, inputs):
    return fed.head(params, fed.fixed, features(params, inputs)).projected


def step(fed, params, anchor, counts, inputs, labels, mask=None):
    """A batch as a pass sees it; rows without a mask hold nonsense."""
    z, before = features(params, inputs), features(anchor, inputs)
    if mask is not None:
        labels = torch.where(mask != 0, labels, -7)
        z, before = (torch.where(mask[:, None] != 0, each, math.nan) for each in (z, before))
    output = fed.head(anchor, fed.fixed, before)
    taught = TeacherOutput(before, output, fed.head.raw_logits(anchor, fed.fixed, output))
    return StepView(
        params=params,
        anchor=anchor,
        fixed=fed.fixed,
        head=fed.head,
        features=z,
        output=fed.head(params, fed.fixed, z),
        labels=labels,
        counts=counts,
        server={},
        client={},
        round=0,
        mask=mask,
        teachers={Teacher(): taught},
    )


def run(fed: Federation, each: DataPass, params, counts, inputs, labels, mask=None):
    """What a pass adds up over two batches, the second of them padded."""
    mask = torch.ones(len(inputs)) if mask is None else mask
    padding = 2
    inputs = torch.cat((inputs, torch.ones(padding, INPUTS, dtype=inputs.dtype)))
    labels, mask = (
        torch.cat((labels, torch.zeros(padding, dtype=labels.dtype))),
        torch.cat((mask, torch.zeros(padding))),
    )
    cut = len(inputs) // 3
    parts = [
        each.of(step(fed, params, fed.anchor, counts, inputs[rows], labels[rows], mask[rows]))
        for rows in (slice(0, cut), slice(cut, None))
    ]
    return tree_map(torch.add, *parts)


def sent(fed: Federation, metric: Metric, params, counts, inputs, labels, mask=None, erased=-1):
    """What a client adds to each sum of the metric."""
    passes = {}
    for declared in metric.local:
        for each in declared.passes:
            passes[each.name] = run(fed, each, params, counts, inputs, labels, mask)
        for each in declared.measured:
            passes[each.name] = run(fed, each, params, counts, fed.inputs, fed.labels)
    given = dict.fromkeys(EndView.__dataclass_fields__) | {
        "params": params, "anchor": fed.anchor, "fixed": fed.fixed, "head": fed.head, "counts": counts,
        "shared": fed.shared, "round": 0, "passes": passes, "erased": erased,
    }  # fmt: skip
    return contributions(metric.local, EndView(**given))


def one_by_one(fed: Federation, metric: Metric):
    return [
        sent(fed, metric, each.params, each.counts, each.inputs, each.labels, erased=each.erased)
        for each in fed.clients
    ]


def find(name, fed: Federation):
    """What the registered metric finds, from the sums of its clients and the passes of the model that came of them."""
    metric = metrics.get(name).make()
    rows = one_by_one(fed, metric)[: 1 if metric.clients == "first" else None]
    for trees in rows:
        assert all(leaf.isfinite().all() for tree in trees.values() for leaf in tree.values())
    reduce = {each.name: each.reduce for each in metric.local}
    totals = dict(sum((Sums(trees, reduce) for trees in rows), Sums()).trees)
    for each in metric.passes:
        totals[each.name] = run(fed, each, fed.after, torch.zeros(CLASSES), fed.inputs, fed.labels)
    return metric.finish(totals)


def assert_vmap_is_one_by_one(name, fed: Federation):
    """Contributions of all clients at once, their samples padded to one length, are those of each."""
    metric = metrics.get(name).make()
    most = max(len(each.labels) for each in fed.clients)

    def padded(rows):
        return torch.cat((rows, torch.zeros(most - len(rows), *rows.shape[1:], dtype=rows.dtype)))

    params = {leaf: torch.stack([each.params[leaf] for each in fed.clients]) for leaf in fed.anchor}
    columns = (
        torch.stack([each.counts for each in fed.clients]),
        torch.stack([padded(each.inputs) for each in fed.clients]),
        torch.stack([padded(each.labels) for each in fed.clients]),
        torch.stack([padded(torch.ones(len(each.labels))) for each in fed.clients]),
    )
    stacked = torch.func.vmap(lambda *mine: sent(fed, metric, *mine))(params, *columns)
    for place, trees in enumerate(one_by_one(fed, metric)):
        for sum_name, tree in trees.items():
            for leaf_name, leaf in tree.items():
                torch.testing.assert_close(stacked[sum_name][leaf_name][place], leaf, rtol=1e-9, atol=1e-9)


def cosine(a, b):
    """The obvious cosine; 0 with a zero vector."""
    lengths = math.sqrt(sum(x * x for x in a.tolist())) * math.sqrt(sum(x * x for x in b.tolist()))
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True)) / lengths if lengths > 0 else 0.0


def degrees(a, b):
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine(a, b)))))


def mean(values):
    """The mean of what there is; NaN of nothing."""
    values = list(values)
    return sum(values) / len(values) if values else math.nan


def pairs(items):
    items = list(items)
    return [(a, b) for place, a in enumerate(items) for b in items[place + 1 :]]


def assert_found(found, expected, tolerance=1e-9):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert _near(found[key], value, tolerance), f"{key}: {found[key]} found, {value} expected"


def _near(found, value, tolerance):
    if math.isnan(value):
        return math.isnan(found)
    return abs(found - value) <= tolerance * max(1.0, abs(value))


def with_params(fed: Federation, place, **leaves):
    """The same federation with other parameters of one client; dots are written as two underscores."""
    changed = {name.replace("__", "."): leaf for name, leaf in leaves.items()}
    clients = list(fed.clients)
    clients[place] = replace(clients[place], params=clients[place].params | changed)
    return replace(fed, clients=clients)
