"""The TOML writer: whatever it writes, tomllib reads back unchanged."""

import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedblade.experiment import _toml

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.booleans() | st.integers() | st.floats(allow_nan=False) | words
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4), max_leaves=12
)
configs = st.dictionaries(words, values, max_size=6)


@given(configs)
def test_what_is_written_is_read_back(config):
    assert typed(tomllib.loads(_toml.dumps(config))) == typed(config)


@given(st.dictionaries(words, values, max_size=4))
def test_lines_of_a_card_are_toml_too(table):
    assert typed(tomllib.loads(_toml.inline(table))) == typed(table)


def typed(value):
    """The value with its types, so that 1 and 1.0 and True differ, and -0.0 and 0.0."""
    if isinstance(value, dict):
        return {key: typed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [typed(each) for each in value]
    return type(value).__name__, repr(value)


def test_numbers_that_are_not_finite_survive():
    back = tomllib.loads(_toml.dumps({"a": math.inf, "b": -math.inf, "c": math.nan}))
    assert (back["a"], back["b"]) == (math.inf, -math.inf)
    assert math.isnan(back["c"])


def test_plain_keys_come_before_the_first_table():
    text = _toml.dumps({"table": {"x": 1}, "plain": 2})
    assert tomllib.loads(text) == {"table": {"x": 1}, "plain": 2}
    assert text.index("plain") < text.index("[table]")


def test_what_toml_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="NoneType"):
        _toml.dumps({"a": None})
