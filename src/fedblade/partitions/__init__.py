"""Ways to divide a data set among clients.

The functions `iid`, `dirichlet`, `dirichlet_clients`, `dirichlet_groups`, `labels`, `pathological` and `shards` give a
split in one call, as a list with one array of sample indices per client. The partitioners behind them (and `Domain`,
`Drawn`, `File`, `Given`, `Natural`, `StochasticRemoval`) are frozen values whose fields are the knobs of a
configuration. Their method `split` gives `Parts` with class counts, removed classes and a digest: a `Split` holds two
flat arrays, a `DrawnSplit` draws the samples of a client when they are asked for. `split_test` divides the test set in
the same way, `save_split` writes a split to a file that the partition `file` reads, and `hardness` measures what a
split means for training.
"""

from fedblade.hardness import LACKS, Hardness
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._dirichlet import Dirichlet, DirichletGroups
from fedblade.partitions._dirichlet_clients import DirichletClients
from fedblade.partitions._drawn import Drawn, DrawnSplit
from fedblade.partitions._file import File, save_split
from fedblade.partitions._functions import (
    dirichlet,
    dirichlet_clients,
    dirichlet_groups,
    iid,
    labels,
    pathological,
    shards,
)
from fedblade.partitions._groups import Domain, Given, Natural
from fedblade.partitions._iid import IID
from fedblade.partitions._pathological import Labels, Pathological
from fedblade.partitions._reported import Reported
from fedblade.partitions._shards import Shards, StochasticRemoval
from fedblade.partitions._split import MOST_DRAWN, VALIDATION, Parts, Removal, Split, hardness
from fedblade.partitions._test_splits import ClientTests, hold_out, split_test

__all__ = [
    "IID",
    "LACKS",
    "MOST_DRAWN",
    "VALIDATION",
    "ClientTests",
    "Dirichlet",
    "DirichletClients",
    "DirichletGroups",
    "Domain",
    "Drawn",
    "DrawnSplit",
    "File",
    "Given",
    "Hardness",
    "Labels",
    "Natural",
    "Partitioner",
    "Parts",
    "Pathological",
    "Removal",
    "Reported",
    "Request",
    "Shards",
    "Split",
    "StochasticRemoval",
    "dirichlet",
    "dirichlet_clients",
    "dirichlet_groups",
    "hardness",
    "hold_out",
    "iid",
    "labels",
    "pathological",
    "save_split",
    "shards",
    "split_test",
]
