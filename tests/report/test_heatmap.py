"""Heat maps: every cell once, at its place and strength."""

import base64
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from fedblade.charts._classes import rounds_within, strongest
from fedblade.report._heatmap import draw_cells, level_of, packed


def read_cells(markup: str, side: int) -> np.ndarray:
    """The level of each cell, from the drawn lines; fails where two overlap."""
    found = np.zeros((side, side), dtype=int)
    for node in ET.fromstring(f"<g>{markup}</g>"):
        sign = 1 if node.get("class") == "pos-stroke" else -1
        level = sign * round(8 * float(node.get("stroke-opacity", "nan")))
        for x, y, run in re.findall(r"M(\d+) (\d+)\.5h(\d+)", node.get("d", "")):
            row = found[int(y), int(x) : int(x) + int(run)]
            assert len(row) == int(run)
            assert not row.any()
            row[:] = level
    return found


@pytest.mark.parametrize("side", [1, 2, 10, 37])
def test_cells_are_drawn_once_with_the_strength_of_their_value(side):
    values = np.random.default_rng(side).uniform(-1, 1, size=(side, side))

    drawn = read_cells(draw_cells(tuple(values.ravel().tolist()), side), side)

    assert np.abs(drawn / 8 - values).max() <= 1 / 16 + 1e-12


def test_unknown_and_vanishing_cells_are_empty():
    assert draw_cells((None, 0.0, 0.01, -0.01), 2) == ""


def test_levels_keep_to_the_scale():
    assert [level_of(v) for v in (-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)] == [-8, -8, -4, 0, 4, 8, 8]


@pytest.mark.parametrize("signed", [True, False])
def test_packed_values_come_back_within_half_a_step(signed):
    low = -1.0 if signed else 0.0
    values = np.linspace(low, 1, 77)

    stored = np.frombuffer(base64.b64decode(packed((*values.tolist(), None), signed=signed)), dtype=np.uint8)

    assert stored[-1] == 255
    step = (1 - low) / 254
    assert np.abs(low + stored[:-1] * step - values).max() <= step / 2 + 1e-12


def test_many_classes_cost_rounds():
    assert rounds_within(10, 10) == 20
    assert rounds_within(100, 10) == 2
    assert rounds_within(1000, 10) == 1


def test_the_strongest_cell_is_off_the_diagonal():
    assert strongest((9.0, 0.5, 0.7, 9.0), 2) == (0.7, 1, 0)
    assert strongest((9.0, None, -0.7, 9.0), 2) == (-0.7, 1, 0)
    assert strongest((9.0, None, None, 9.0), 2) is None
    assert strongest(None, 2) is None
