"""Ranks of methods with their spread: a bootstrap over seeds and late rounds, and its figure.

A draw takes as many seeds as there are, with replacement, and of every drawn seed as many of its last rounds, with
replacement. All methods get the same seeds and rounds, because these share the split and the cohorts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000
SHARE = 90
"""The percentage of draws that an interval of ranks holds."""
ROW, LEFT, WIDTH, TOP = 24, 150, 640, 34
INK, MUTED, ACCENT = "#1f2933", "#7b8794", "#3b6fb6"


@dataclass(frozen=True)
class Rank:
    """Where a method stands among the others: the mean rank over draws, and the interval that holds 90 % of them."""

    label: str
    mean: float
    low: int
    high: int


def ranks(labels: Sequence[str], late: NDArray[np.float64]) -> list[Rank]:
    """The ranks of methods from their late accuracies [methods, seeds, rounds]; 1 is the best. Ties share a mean."""
    seeds, rounds = late.shape[1:]
    random = np.random.default_rng(0)
    drawn = random.integers(seeds, size=(DRAWS, seeds, 1))
    when = random.integers(rounds, size=(DRAWS, seeds, rounds))
    means = np.stack([method[drawn, when].mean(axis=(1, 2)) for method in late], axis=1)
    better = (means[:, None, :] > means[:, :, None]).sum(axis=2)
    equal = (means[:, None, :] == means[:, :, None]).sum(axis=2)
    of_draw = better + (equal + 1) / 2
    tail = (100 - SHARE) / 2
    low = np.percentile(of_draw, tail, axis=0, method="lower").astype(int)
    high = np.ceil(np.percentile(of_draw, 100 - tail, axis=0, method="higher")).astype(int)
    found = zip(labels, of_draw.mean(axis=0), low, high, strict=True)
    return sorted((Rank(label, float(mean), int(a), int(b)) for label, mean, a, b in found), key=lambda each: each.mean)


def figure(found: Sequence[Rank], caption: str) -> str:
    """The intervals as an SVG picture, the best method on top."""
    height = TOP + ROW * len(found) + 46
    step = (WIDTH - LEFT - 30) / max(1, len(found) - 1)

    def at(rank: float) -> float:
        return round(LEFT + 10 + (rank - 1) * step, 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for rank in range(1, len(found) + 1):
        lines.append(f'<line x1="{at(rank)}" y1="{TOP - 8}" x2="{at(rank)}" y2="{height - 42}" stroke="#e4e7eb"/>')
        lines.append(f'<text x="{at(rank)}" y="{TOP - 14}" text-anchor="middle" fill="{MUTED}">{rank}</text>')
    for number, each in enumerate(found):
        y = TOP + ROW * number + ROW // 2
        lines.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end" fill="{INK}">{escape(each.label)}</text>')
        lines.append(
            f'<line x1="{at(each.low)}" y1="{y}" x2="{at(each.high)}" y2="{y}" stroke="{ACCENT}" stroke-width="3"/>'
        )
        lines.append(f'<circle cx="{at(each.mean)}" cy="{y}" r="5" fill="{ACCENT}"/>')
    lines.append(
        f'<text x="{WIDTH / 2}" y="{height - 14}" text-anchor="middle" fill="{MUTED}">{escape(caption)}</text>'
    )
    return "\n".join([*lines, "</svg>"]) + "\n"
