"""Data frames from Python: alone, as the data of clients, and columns that are no inputs."""

import datetime

import numpy as np
import pandas as pd
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.data import ClientData, as_dataset
from support.for_every import for_every

RNG = np.random.default_rng(5)
Y = np.arange(60) % 3
FRAME = pd.DataFrame({"age": RNG.integers(20, 90, 60), "city": RNG.choice(["Oslo", "Lima"], 60)})


def test_a_frame_without_a_test_frame_loses_a_fifth():
    dataset = as_dataset((FRAME, Y))
    assert (len(dataset.train), len(dataset.test)) == (48, 12)
    assert any("12 of 60 samples are held out" in note for note in dataset.notes)


def test_frames_of_clients_are_one_table():
    """The mean is that of the training samples of all clients, not of one of them."""
    halves = {"north": (FRAME[:30], Y[:30]), "south": (FRAME[30:], Y[30:], FRAME[:6], Y[:6])}
    dataset = ClientData.of(halves).dataset(0)
    assert [column.name for column in dataset.encoding.columns] == ["age", "city"]
    assert np.bincount(dataset.train.groups).tolist() == [24, 30]
    np.testing.assert_allclose(dataset.train.inputs[:, 0].mean(), 0.0, atol=1e-6)
    assert abs(dataset.train.inputs[:24, 0].mean()) > 1e-4
    assert dataset.test.inputs.shape == (12, 3)


def test_names_of_columns_need_not_be_text():
    unnamed = FRAME.set_axis([0, 1], axis=1)
    assert [column.name for column in as_dataset((unnamed, Y)).encoding.columns] == ["0", "1"]


def test_a_column_of_python_numbers_holds_numbers():
    objects = FRAME.astype({"age": object})
    assert as_dataset((objects, Y)).digest() == as_dataset((FRAME, Y)).digest()


def test_a_missing_value_of_any_pandas_type_is_named():
    for column, kind in (("age", "Int64"), ("city", "string"), ("city", "category"), ("age", object)):
        frame = FRAME.astype({column: kind})
        frame.loc[4, column] = pd.NA
        with pytest.raises(Misconfigured, match=rf"no value in column '{column}', row 4 \(1 of 60.*fillna"):
            as_dataset((frame, Y))


REFUSED = {
    "two columns of one name": (FRAME.set_axis(["a", "a"], axis=1), "two columns 'a'"),
    "a number among texts": (
        FRAME.assign(city=["Oslo", 3] * 30),
        r"row 0 is 'Oslo', and row 1 is the number '3'.*frame\['city'\].astype\('category'\)",
    ),
    "dates as objects": (FRAME.assign(city=[datetime.date(2024, 1, 2)] * 60), "the date or time '2024-01-02'"),
    "dates as text": (
        FRAME.assign(city=["21 Jan 2024"] * 60),
        r"the date or time '21 Jan 2024'.*drop\(columns='city'\)",
    ),
    "per cent": (FRAME.assign(city=["20%", "30 %"] * 30), r"row 0 is '20%'; expected digits and a decimal point alone"),
    "infinite": (FRAME.assign(age=[*FRAME["age"][:59], np.inf]), "column 'age', row 59 is infinite"),
}


@for_every(REFUSED)
def test_columns_that_are_no_inputs_are_refused(case):
    frame, words = REFUSED[case]
    with pytest.raises(Misconfigured, match=words):
        as_dataset((frame, Y))


def test_categories_of_pandas_are_names_whatever_they_look_like():
    coded = FRAME.assign(city=["1,5", "2,5"] * 30).astype({"city": "category", "age": "category"})
    age, city = as_dataset((coded, Y)).encoding.columns
    assert city.values == ("1,5", "2,5")
    assert set(age.values) <= set(map(str, FRAME["age"]))


def test_a_frame_and_an_array_are_two_forms():
    with pytest.raises(Misconfigured, match="x_train is a DataFrame and x_test a ndarray; expected data frames"):
        as_dataset((FRAME, Y, np.zeros((4, 2)), Y[:4]))
    with pytest.raises(Misconfigured, match="client 'north' has a table, and client 'south' arrays"):
        ClientData.of({"north": (FRAME, Y), "south": (np.zeros((4, 2)), Y[:4])}).dataset(0)
