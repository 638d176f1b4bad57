"""The colours of all charts, on the page and on paper."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1b1f24")
"""Okabe and Ito's palette without its yellow, which is illegible on white. A line's colour is its index in it."""
COLOURS_ON_DARK = ("#3d9fe0", "#f0762b", "#1fbf92", "#dd93bb", "#f0b429", "#8fd0f7", "#e8ebee")
"""The same colours for a dark background."""
POSITIVE, NEGATIVE = COLOURS[0], COLOURS[1]
"""The ends of a scale from minus one to one."""
INK, MUTED, GRID = "#1b1f24", "#57606a", "#e3e7eb"
"""Text, marks that belong to no run, and grid lines."""
