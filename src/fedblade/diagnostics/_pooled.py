"""Tables of class against class: whole for few classes, pooled into blocks of neighbouring classes for many.

A table of 1,000 by 1,000 classes would be 14 MB a round in the run folder, and nobody can read a picture of it. Up to
200 classes, as many as the data sets of the papers have, tables stay whole. Above, at most 100 by 100 blocks are kept.
"""

import math
from typing import Any

import torch
from torch import Tensor

from fedblade.diagnostics._batch import MOST_CLASSES, as_lists, members

_MOST_BLOCKS = 100


def block_size(classes: int) -> int:
    """How many neighbouring classes form a block; 1 if tables stay whole. The last block may have fewer."""
    return 1 if classes <= MOST_CLASSES else -(-classes // _MOST_BLOCKS)


def block_members(labels: Tensor, classes: int, real: Tensor) -> Tensor:
    """1 if a sample is real and its label lies in the block, else 0: [batch, blocks] in float64."""
    size = block_size(classes)
    return members(labels // size, -(-classes // size), real)


def mean_cosines(directions: Tensor) -> Tensor:
    """Mean cosine between a class of one block and a class of another: [blocks, blocks].

    `directions [classes, dim]` are unit vectors, or 0 for classes without a direction, which are left out. On the
    diagonal the mean is over pairs of different classes. NaN without pairs. All follows from the sums over blocks.
    """
    classes = len(directions)
    of_block = block_members(torch.arange(classes, device=directions.device), classes, directions.norm(dim=1) > 0)
    sums, squares, known = of_block.mT @ directions, of_block.mT @ directions.square().sum(1), of_block.sum(0)
    pairs = torch.outer(known, known) - known.diag()
    return torch.where(pairs > 0, (sums @ sums.mT - squares.diag()) / pairs, math.nan)


def pooled_table(values: Tensor, classes: int, size: int) -> dict[str, Any]:
    """A pooled table as it is stored: its values, the number of classes and how many of them form a block."""
    plain = values.tolist() if values.dtype == torch.int64 else as_lists(values)
    return {"classes": classes, "block": size, "values": plain}
