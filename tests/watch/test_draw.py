"""Characters against pictures made by hand."""

from itertools import pairwise

import pytest

from fedblade.watch._draw import clock, curve, number, sparkline, terminal_safe


def dots(rows: list[str]) -> set[tuple[int, int]]:
    """Places (column, row from the top) of the dots of braille characters."""
    left, right = (0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80)
    places = {bit: (column, row) for column, bits in enumerate((left, right)) for row, bit in enumerate(bits)}
    found = set()
    for y, row in enumerate(rows):
        for x, character in enumerate(row):
            bits = 0 if character == " " else ord(character) - 0x2800
            found |= {(2 * x + dx, 4 * y + dy) for bit, (dx, dy) in places.items() if bits & bit}
    return found


def test_a_straight_line_is_the_diagonal():
    assert dots(curve([(0, 0.0), (7, 7.0)], 7, 4, 2)) == {(at, 7 - at) for at in range(8)}


def test_the_x_axis_reaches_to_the_last_round_planned():
    found = dots(curve([(1, 0.0), (2, 1.0), (3, 0.0)], 5, 10, 1))
    assert max(column for column, _ in found) == round(2 / 4 * 19)
    assert {row for _, row in found} == {0, 1, 2, 3}


def test_more_rounds_than_planned_still_fit():
    assert max(column for column, _ in dots(curve([(1, 0.0), (9, 1.0)], 5, 3, 1))) == 5


def test_a_constant_is_a_line_in_the_middle_and_a_single_point_a_dot():
    assert dots(curve([(1, 5.0), (4, 5.0)], 4, 3, 2)) == {(column, 4) for column in range(6)}
    assert len(dots(curve([(1, 5.0)], 1, 3, 2))) == 1
    assert curve([], 9, 3, 2) == ["   ", "   "]


@pytest.mark.parametrize("level", [0.1, 1.0, -96.379, 2.3025851e6, 0.0])
def test_rounding_noise_of_a_constant_is_flat(level):
    noise = [0.0, 3e-7, -2e-7, 5e-7, 1e-7] if level else [0.0, 2e-16, -1e-16, 0.0, 3e-17]
    values = [level * (1 + each) if level else each for each in noise]
    points = list(enumerate(values))
    assert curve(points, 4, 6, 2) == curve([(x, level) for x, _ in points], 4, 6, 2)
    assert sparkline(values, 5) == "▄▄▄▄▄"


def test_what_the_numbers_beside_it_show_is_not_flat():
    """Of four digits the last one changes."""
    assert sparkline([99.99, 99.98, 99.99], 3) == "█▁█"
    assert sparkline([2e-9, 1e-9], 2) == "█▁"
    assert len({row for _, row in dots(curve([(0, 2.301), (1, 2.302)], 1, 4, 2))}) == 8


def test_blocks_of_unequal_numbers_of_equal_values_are_flat():
    assert sparkline([0.1] * 7, 3) == "▄▄▄"


@pytest.mark.parametrize("rounds", [2, 7, 11, 60])
def test_a_curve_has_no_gaps(rounds):
    points = [(at, float(at % 2)) for at in range(1, rounds + 1)]
    found = sorted(dots(curve(points, rounds, 71, 3)))
    assert {column for column, _ in found} == set(range(142))
    flat = [(at, float(at)) for at in range(1, rounds + 1)]
    slope = sorted(dots(curve(flat, rounds, 71, 3)))
    steps = [(x - x0, abs(y - y0)) for (x0, y0), (x, y) in pairwise(slope)]
    assert max(map(max, steps)) == 1


@pytest.mark.parametrize("points", [[(at, float(at * at % 17)) for at in range(n)] for n in (1, 2, 50, 3000)])
def test_rows_and_columns_are_those_asked_for(points):
    rows = curve(points, 4000, 33, 5)
    assert [len(row) for row in rows] == [33] * 5


def test_sparklines():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 10, 10], 2) == "▁█"
    assert sparkline([3.0, 3.0], 8) == "▄▄"
    assert sparkline([], 8) == ""
    assert len(sparkline(list(range(1000)), 20)) == 20


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (7.9, "0:07"), (754, "12:34"), (3723, "1:02:03"), (2 * 86400 + 3 * 3600 + 245, "2 d 03:04")],
)
def test_clock(seconds, text):
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(10.0, "10"), (14581.0, "14,581"), (76.16926, "76.17"), (-0.00025, "-0.00025"), (3e8, "3e+08")]
)
def test_number(value, text):
    assert number(value) == text


def test_nothing_from_a_file_steers_the_terminal():
    assert terminal_safe("fed\x1b[2Javg\n\u202e") == "fed�[2Javg��"
