"""Values on one line: whatever is written, tomllib reads back unchanged."""

import math
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.config.literals import entry

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.booleans() | st.integers() | st.floats(allow_nan=False) | words
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4), max_leaves=12
)


@settings(deadline=None)
@given(st.dictionaries(words, values, max_size=4))
def test_lines_of_a_card_are_toml_too(table):
    assert typed(tomllib.loads("\n".join(entry(key, value) for key, value in table.items()))) == typed(table)


def typed(value):
    """The value with its types, so that 1 and 1.0 and True differ, and -0.0 and 0.0."""
    if isinstance(value, dict):
        return {key: typed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [typed(each) for each in value]
    return type(value).__name__, repr(value)


def test_numbers_that_are_not_finite_survive():
    assert [entry("a", value) for value in (math.inf, -math.inf, math.nan)] == ["a = inf", "a = -inf", "a = nan"]


def test_what_toml_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="NoneType"):
        entry("a", None)
