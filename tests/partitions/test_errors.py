"""Every mistake is refused in one line that names the value and the remedy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.partitions import (
    IID,
    Dirichlet,
    DirichletClients,
    DirichletGroups,
    Domain,
    File,
    Labels,
    Natural,
    Pathological,
    Shards,
    StochasticRemoval,
    split_test,
)

LABELS = np.arange(60) % 3
GROUPS = np.arange(60) % 4
NAN, INF = float("nan"), float("inf")

KNOBS = [
    (lambda: Dirichlet(alpha=0), "alpha=0 is not usable. Give a finite concentration above 0"),
    (lambda: Dirichlet(alpha=-0.5), "alpha=-0.5"),
    (lambda: Dirichlet(alpha=NAN), "alpha=nan"),
    (lambda: Dirichlet(alpha=INF), "alpha=inf"),
    (lambda: Dirichlet(alpha="0.1"), "alpha='0.1'"),
    (lambda: Dirichlet(alpha=True), "alpha=True"),
    (lambda: Dirichlet(min_size=-1), "min_size=-1 is not usable. Give a whole number of at least 0."),
    (lambda: Dirichlet(min_size=2.5), "min_size=2.5"),
    (lambda: Dirichlet(min_size=True), "min_size=True"),
    (lambda: Dirichlet(cap="no"), "cap='no' is not a switch. Give cap=true or cap=false."),
    (lambda: Dirichlet(min_size_fallback=1), "min_size_fallback=1"),
    (lambda: Dirichlet(allow_empty=None), "allow_empty=None"),
    (lambda: DirichletClients(alpha=0), "alpha=0 is not usable. Give a finite concentration above 0"),
    (
        lambda: DirichletClients(sizes="log"),
        "unknown sizes 'log'. Did you mean 'lognormal'? Choose from: equal, lognormal.",
    ),
    (lambda: DirichletClients(deal="client"), "unknown deal 'client'. Did you mean 'clients'?"),
    (lambda: DirichletClients(sigma=0), "sigma=0 is not usable. Give a number above 0 and up to 50"),
    (lambda: DirichletGroups(alpha=0), "alpha=0 is not usable"),
    (lambda: DirichletGroups(group=0), "group=0 is not usable. Give a whole number of at least 1."),
    (lambda: Labels(0), "classes_per_client=0 is not usable"),
    (lambda: File(allow_empty=1), "allow_empty=1 is not a switch"),
    (lambda: Pathological(0), "classes_per_client=0 is not usable. Give a whole number of at least 1."),
    (lambda: Shards(0), "shards_per_client=0"),
    (lambda: Shards("2"), "shards_per_client='2'"),
    (lambda: StochasticRemoval(0), "shards_per_client=0"),
    (lambda: StochasticRemoval(every=0), "every=0"),
    (lambda: Domain(0), "fraction=0 is not usable. Give a number above 0 and up to 1"),
    (lambda: Domain(1.01), "fraction=1.01"),
    (lambda: Domain(NAN), "fraction=nan"),
]

REQUESTS = [
    (lambda: IID().split(LABELS, 0, 0), "num_clients=0 is not usable. Give a whole number of at least 1."),
    (lambda: IID().split(LABELS, 2.0, 0), "num_clients=2.0"),
    (lambda: IID().split(LABELS, 2, -1), "seed=-1"),
    (lambda: IID().split(LABELS, 61, 0), "num_clients=61 is more than the 60 samples there are. Use fewer clients"),
    (lambda: Dirichlet(min_size=0).split(LABELS, 61, 0), "num_clients=61 is more than"),
    (lambda: IID().split([1, 1, 1], 2, 0), "labels hold only one class (1), expected two or more"),
    (lambda: IID().split([1, 1, 1], 2, 0, num_classes=5), "only one class"),
    (lambda: IID().split([], 2, 0), "labels are empty"),
    (lambda: IID().split([0, -1, 1], 2, 0), "labels contain -1, expected classes from 0 on"),
    (lambda: IID().split([0, 1, 7], 2, 0, num_classes=3), "labels contain 7, but num_classes=3 allows 0 to 2"),
    (lambda: IID().split([0, 1, 1], 2, 0, num_classes=0), "num_classes=0"),
    (lambda: IID().split([0, 10**12], 2, 0), "too large for a class"),
    (lambda: IID().split([0.0, 1.0], 2, 0), "labels have type float64, expected integers"),
    (lambda: IID().split(torch.tensor([0.0, 1.0]), 2, 0), "labels have type float32"),
    (lambda: IID().split([True, False], 2, 0), "labels have type bool"),
    (lambda: IID().split(["a", "b"], 2, 0), "expected integers"),
    (lambda: IID().split([[0, 1], [1, 0]], 2, 0), "labels have shape [2, 2], expected one dimension"),
    (lambda: IID().split([[0, 1], [1]], 2, 0), "labels are ragged"),
    (lambda: IID().split(3, 2, 0), "labels have shape []"),
    (lambda: DirichletClients().split(LABELS, 61, 0), "num_clients=61 is more than the 60 samples there are"),
    (lambda: DirichletGroups().split(LABELS, 61, 0), "num_clients=61 is more than the 60 samples there are"),
    (
        lambda: DirichletGroups().split(LABELS, 15, 0),
        "group=10 does not divide num_clients=15. Use group=5, or a number",
    ),
    (lambda: DirichletGroups(1e-3).split(LABELS, 20, 0), "gave every client of a group 1 samples (half of the mean"),
    (lambda: Labels(4).split(LABELS, 5, 0), "classes_per_client=4 is more than the 3 classes there are"),
    (lambda: File().split(LABELS, 5, 0), "partition 'file' has no path. Give partition.path=split.json."),
    (lambda: Pathological(4).split(LABELS, 5, 0), "classes_per_client=4 is more than the 3 classes there are"),
    (lambda: Pathological(1).split(LABELS, 2, 0), "num_clients=2 with classes_per_client=1 leaves some of 3 classes"),
    (lambda: Pathological(3).split([0, 1, 2, 2, 2, 2], 2, 0), "class 0 has 1 samples for the 2 clients that hold it"),
    (lambda: Shards(1).split(LABELS, 2, 0), "num_clients=2 with shards_per_client=1 makes 2 shards for 3 classes"),
    (lambda: StochasticRemoval(1).split(LABELS, 2, 0), "makes 2 shards for 3 classes"),
    (lambda: Shards(1).split([0, 1, 1, 1, 1, 1], 6, 0), "A class has fewer samples than shards: use fewer clients."),
    (lambda: Domain().split(LABELS, 4, 0), "partition 'domain' needs the group of each sample"),
    (lambda: Natural().split(LABELS, 4, 0), "partition 'natural' needs the group of each sample"),
    (lambda: Domain().split(LABELS, 3, 0, groups=GROUPS), "num_clients=3 does not match the 4 domains"),
    (lambda: Domain(0.05).split(LABELS, 4, 0, groups=GROUPS), "of the smallest domain (15 samples) is less than one"),
    (lambda: Natural().split(LABELS, 5, 0, groups=GROUPS), "num_clients=5 is more than the 4 groups"),
    (lambda: Natural().split(LABELS, 4, 0, groups=GROUPS[:9]), "groups have 9 entries for 60 samples"),
    (lambda: Natural().split(LABELS, 4, 0, groups=[[1]] * 60), "groups have shape [60, 1]"),
    (lambda: Natural().split(LABELS, 4, 0, groups=["a", None] * 30), "groups mix types or have gaps"),
]


def _test_split(name="proportional", labels=LABELS, seed=0, groups=None):
    split = Natural().split(LABELS, 4, 0, groups=GROUPS)
    return lambda: split_test(name, split, labels, seed, test_groups=groups)


TEST_SPLITS = [
    (_test_split("matchd"), "unknown test split 'matchd'. Did you mean 'matched'?"),
    (_test_split(), "test split 'proportional' needs the class shares of the split or the group of each test sample"),
    (_test_split("global", seed=-3), "seed=-3"),
    (_test_split("global", labels=[]), "test labels are empty"),
    (_test_split("matched", labels=[0, 3]), "test labels contain 3, but num_classes=3 allows 0 to 2"),
    (_test_split("matched", labels=[0.5]), "test labels have type float64"),
    (_test_split(groups=GROUPS[:5]), "test groups have 5 entries for 60 samples"),
    (_test_split(groups=["a"] * 60), "test groups have type <U1, training groups have type int64"),
]


@pytest.mark.parametrize(
    ("attempt", "text"), KNOBS + REQUESTS + TEST_SPLITS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_mistake_is_refused_in_one_helpful_line(attempt, text):
    with pytest.raises(Misconfigured) as caught:
        attempt()
    message = str(caught.value)
    assert text in message
    assert "\n" not in message
    assert message.endswith((".", "?"))


def test_proportional_without_shares_and_groups_is_refused():
    split = replace(IID().split(LABELS, 4, 0), shares=None)
    with pytest.raises(Misconfigured, match="both are missing"):
        split_test("proportional", split, LABELS, 0, test_groups=GROUPS)
