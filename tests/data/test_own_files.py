"""A user's tables in files: what is read, how it is encoded, and what is refused in one line."""

import json
from functools import reduce

import numpy as np
import pandas as pd
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.data import as_dataset
from fedblade.data.files import files
from fedblade.data.own_files import OwnSamples, ReadSettings, encoded, hold_out_test, read_own_file
from fedblade.data.table_encoding import TableEncoding, encoding_of
from fedblade.data.table_rows import encode_rows
from fedblade.data.table_sums import TableSums, table_sums

ROWS = 40


@pytest.fixture
def frame():
    """Numbers with a large offset, whole numbers, texts, truth values, and names as labels."""
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "income": rng.normal(1e6, 3.0, ROWS),
            "age": rng.integers(18, 80, ROWS),
            "city": rng.choice(["Łódź", "Oslo", "São Paulo, SP"], ROWS),
            "smokes": rng.random(ROWS) < 0.5,
            "label": rng.choice(["ill", "well"], ROWS),
        }
    )


def reference(frame, train):
    """Inputs by pandas, with mean and deviation of the training rows."""
    numbers = frame[["income", "age"]].astype(float)
    standard = (numbers - numbers[:train].mean()) / numbers[:train].std(ddof=0)
    return np.concatenate([standard, pd.get_dummies(frame[["city", "smokes"]].astype(str), dtype=float)], axis=1)


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_numbers_are_standardised_by_training_rows_and_texts_become_categories(frame, ending, tmp_path):
    for name, part in (("train", frame[:30]), ("test", frame[30:])):
        path = tmp_path / f"{name}.{ending}"
        if ending == "parquet":
            part.to_parquet(path)
        else:
            part.to_csv(path, index=False, sep={"csv": ";", "tsv": "\t"}[ending], encoding="utf-8-sig")
    dataset = files(str(tmp_path / f"train.{ending}"), str(tmp_path / f"test.{ending}"))
    expected = reference(frame, 30)
    # The deviation is 3e-6 of the mean: the sums of squares keep ten digits of it at least.
    np.testing.assert_allclose(dataset.train.inputs, expected[:30], atol=1e-4)
    np.testing.assert_allclose(dataset.test.inputs, expected[30:], atol=1e-4)
    assert dataset.class_names == dataset.label_values == ("ill", "well")
    assert [dataset.class_names[label] for label in dataset.train.labels] == frame["label"][:30].tolist()


def test_sums_add_up_over_clients_in_any_order_and_hold_no_row(frame, tmp_path):
    clients = []
    for k, rows in enumerate((frame[:25], frame[25:28], frame[28:])):
        rows.to_csv(tmp_path / f"{k}.csv", index=False)
        clients.append(read_own_file(tmp_path / f"{k}.csv"))
    frame.to_csv(tmp_path / "all.csv", index=False)
    whole = table_sums(read_own_file(tmp_path / "all.csv").x)
    parts = [TableSums.from_json(json.loads(json.dumps(table_sums(client.x).to_json()))) for client in clients]
    for order in ([0, 1, 2], [2, 0, 1]):
        total = reduce(TableSums.plus, [parts[k] for k in order])
        for name, column in whole.columns.items():
            if name in ("income", "age"):
                mine = total.columns[name]
                assert mine.count == column.count == ROWS
                assert (mine.total, mine.squares) == pytest.approx((column.total, column.squares), rel=1e-15)
            else:
                assert total.columns[name] == column
    assert set(parts[1].to_json()["age"]) == {"count", "total", "squares", "all_different"}
    alone = encoded({str(k): hold_out_test(OwnSamples(client.x, client.y)) for k, client in enumerate(clients)})
    assert {samples.encoding for samples in alone.values()} == {alone["0"].encoding}


def test_the_encoding_is_plain_json(frame):
    encoding, _ = encoding_of(table_sums(table_of(frame)), fills=False)
    stored = TableEncoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert stored == encoding
    rows = frame.drop(columns="label")
    expected = encoding.encode(table_of(frame))
    forms = (rows, frame, rows.to_dict("list"), rows.to_dict("records"), rows[rows.columns[::-1]])
    for form in forms:
        assert np.array_equal(encode_rows(stored, form), expected)
    assert np.array_equal(encode_rows(stored, rows.to_dict("records")[0]), expected[:1])
    assert not encode_rows(stored, {**rows.to_dict("records")[0], "city": "Rome"})[0, 2:5].any()
    for wrong, words in (
        (expected, "expected rows with names of columns"),
        (rows.drop(columns="age"), "no column 'age'"),
        (rows.assign(age="old"), "column 'age' has a cell that is no number"),
        (rows.assign(age=None), "column 'age', row 1 has no value, and the model learnt from rows without missing"),
        (rows.assign(age=np.inf), "column 'age', row 1 is infinite"),
        ({**rows.to_dict("list"), "age": [40]}, "'age': 1.*expected equally many"),
        (pd.concat([rows, rows], axis=1), "two columns 'income'"),
    ):
        with pytest.raises(Misconfigured, match=words):
            encode_rows(stored, wrong)


def table_of(frame):
    from fedblade.data._table import Table

    texts = frame[["city", "smokes"]].astype(str).astype(object)
    columns = {name: frame[name].to_numpy(float) for name in ("income", "age")}
    return Table(columns | {name: texts[name].to_numpy() for name in texts})


def test_data_frames_are_read_as_files_are(frame, tmp_path):
    for name, part in (("train", frame[:30]), ("test", frame[30:])):
        part.to_parquet(tmp_path / f"{name}.parquet")
    expected = files(str(tmp_path / "train.parquet"), str(tmp_path / "test.parquet"))
    x, y = frame.drop(columns="label"), frame["label"]
    dataset = as_dataset((x[:30], y[:30], x[30:], y[30:]))
    assert dataset.digest() == expected.digest()
    assert dataset.encoding == expected.encoding
    for column, words in (
        (None, "row 0 .10 of 10 in this column.*fillna"),
        (pd.Timestamp("2024-01-02"), "date or time"),
    ):
        with pytest.raises(Misconfigured, match=words):
            as_dataset((x[:30], y[:30], x[30:].assign(age=column), y[30:]))


def test_missing_values_are_filled_if_asked(frame, tmp_path):
    frame = frame.astype({"age": float, "city": object})
    frame.loc[3, "age"], frame.loc[5, "city"] = np.nan, None
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(Misconfigured, match=r"column 'age', row 5 has no value \(1 of 40.*dataset.missing=fill"):
        files(str(tmp_path / "a.csv"))
    dataset = files(str(tmp_path / "a.csv"), str(tmp_path / "a.csv"), missing="fill")
    assert dataset.train.inputs[3, 1] == 0.0
    assert not dataset.train.inputs[5, 2:5].any()
    known = frame["age"].drop(3)
    np.testing.assert_allclose(
        np.delete(dataset.train.inputs[:, 1], 3), (known - known.mean()) / known.std(ddof=0), rtol=1e-5
    )


def test_columns_that_say_nothing_are_left_out_and_a_line_says_so(tmp_path):
    rows = "".join(f"{k},name {k},7,{10**9 + k},{k * 7 % 13},{k % 2}\n" for k in range(150))
    (tmp_path / "a.csv").write_text(f",name,same,far,x,label\n{rows}")
    dataset = files(str(tmp_path / "a.csv"))
    assert dataset.input_shape == (1,)
    said = " · ".join(dataset.notes)
    assert "column 'name' has another text in every row, so it is an identifier, and is left out" in said
    assert "column 'same' is the same in every training row, up to rounding, and is left out" in said
    assert "column 'far' has a deviation below 3e-07 of its mean (subtract a constant" in said
    assert "the first column has no name and is left out" in said
    assert "30 of 150 samples are held out" in said
    numbers = files(str(tmp_path / "a.csv"), drop="name, same, far", categories="x")
    assert numbers.input_shape == (13,)


def test_a_text_that_never_repeats_is_left_out_of_small_tables_too(tmp_path):
    (tmp_path / "a.csv").write_text("name,x,label\n" + "".join(f"p{k},{k % 7},{k % 2}\n" for k in range(20)))
    dataset = files(str(tmp_path / "a.csv"))
    assert dataset.input_shape == (1,)
    assert "column 'name' has another text in every row, so it is an identifier, and is left out" in dataset.notes


def test_whole_numbers_beyond_those_of_floats_are_rounded(tmp_path):
    frame = pd.DataFrame({"size": [2**60 + 2**58 * (k % 3) + 1 for k in range(20)], "label": [0, 1] * 10})
    frame.to_parquet(tmp_path / "a.parquet")
    assert files(str(tmp_path / "a.parquet")).input_shape == (1,)


def test_a_whole_number_that_never_repeats_gets_a_line(tmp_path):
    (tmp_path / "a.csv").write_text("id,x,label\n" + "".join(f"{k},{k % 7},{k % 2}\n" for k in range(150)))
    assert any(
        "column 'id' has another whole number in every row" in note for note in files(str(tmp_path / "a.csv")).notes
    )


def test_codes_stay_as_they_are(tmp_path):
    """Python reads 1_2 as the number 12, and %g writes 1234567 and 1234568 alike."""
    (tmp_path / "a.csv").write_text("code,x,label\n" + "1_1,1,2_0\n1_2,2,2_1\n1_3,3,2_0\n" * 9)
    dataset = files(str(tmp_path / "a.csv"))
    assert dataset.encoding.columns[0].values == ("1_1", "1_2", "1_3")
    assert dataset.label_values == ("2_0", "2_1")
    codes = pd.DataFrame({"code": [1234567.0, 1234568.0, 0.5] * 9, "x": range(27), "label": [0, 1, 1] * 9})
    codes.to_parquet(tmp_path / "a.parquet")
    encoding = files(str(tmp_path / "a.parquet"), categories="code").encoding
    assert encoding.columns[0].values == ("0.5", "1234567", "1234568")
    assert encode_rows(encoding, codes.drop(columns="label"))[:, 0:3].sum(axis=1).tolist() == [1.0] * 27


WRONG = {
    "": "is empty",
    "label\n1\n2\n": "has one column, 'label'",
    "a,b,target\n1,2,0\n": r"no label column 'label'.*dataset.label=NAME.*a, b, target",
    "a,b,LABEL\n1,2,0\n": "Did you mean 'LABEL'",
    "a,b,label\n1,,0\n2,,1\n": "no value in column 'b'",
    "a,b,label\n1,2,0\n2,3,1,9\n": "row 3 of .* has 4 cells; expected 3",
    "a,b,label\n1,2,0\n\n2,3,1\n": "row 3 of .* has 0 cells",
    "a,b,label\n1,2,0\nx,3,1\n": "column 'a', row 3 is 'x', and row 2 is the number '1'",
    "a,b,label\n" + "1,2,0\n" * 8192 + "x,3,1\n": "column 'a', row 8194 is 'x', and row 2 is the number",
    "a,b,label\n" + "x,2,0\n" * 8192 + "1,3,1\n": "row 2 is 'x', and row 8194 is the number '1'",
    "a,b,label\n1,2,0.0\n2,3,1.0\n": r"the label '0.0'; expected whole numbers.*dataset.categories=label",
    "a,a,label\n1,2,0\n": "two columns 'a'",
    "a,,label\n1,2,0\n": "no name for column 2",
    "a,day,label\n1,2024-01-02,0\n2,2024-01-03,1\n": r"date or time '2024-01-02'.*dataset.drop=day",
    "a;b;label\n1,5;2;0\n2,5;3;1\n": r"row 2 is '1,5'; expected digits and a decimal point",
    'a,b,label\n"1,020",2,0\n999,3,1\n': r"row 2 is '1,020'; .*1020.5 for 1,020.5.*dataset.categories=a",
    "a,b,label\n20%,2,0\n3.5%,3,1\n": r"row 2 is '20%'; .*digits and a decimal point",
    "a,b,label\n$1,2,0\n$3,3,1\n": r"row 2 is '\$1'; .*digits and a decimal point",
    "a,b,label\n3 Mar 2024,2,0\n4 March 2024,3,1\n": "date or time '3 Mar 2024'",
    "a,b,label\n": "no rows",
    "1,2,0\n2,3,1\n": "has numbers only; expected the names",
    "a,b,label\n1,2,0\n2,3,\n": "row 3 has no label",
    "a,b,label\n1,inf,0\n2,3,1\n": "row 2 is 'inf'; expected a finite number",
    'a,b,label\n1,"x,0\n2,1,1\n': "cannot be read as CSV",
    "a,b,label\n" + "".join(f"n{k // 2},{k % 5},{k % 2}\n" for k in range(400)): "more than 100 different texts",
    "a,b,label\n" + "1,2,0\n3,2,1\n" * 5 + "1e200,2,0\n" * 9: "too large to be squared",
    "a,b,label\n" + "1,2,0\n" * 9: "no column is left as an input",
    "a,b,label\n1_2,1,0\n2,2,1\n": "column 'a', row 2 is '1_2', and row 3 is the number '2'",
}


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_wrong_tables_are_refused_in_one_line(case, tmp_path):
    text, words = list(WRONG.items())[case]
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(Misconfigured, match=words) as caught:
        files(str(tmp_path / "a.csv"))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_tables_are_refused(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "latin.csv").write_text("a,stadt,label\n1,Köln,0\n", encoding="latin-1")
    (tmp_path / "zero.parquet").touch()
    (tmp_path / "text.parquet").write_text("hello")
    pd.DataFrame({"day": pd.to_datetime(["2024-01-02"] * 4), "label": [0, 1, 0, 1]}).to_parquet(
        tmp_path / "day.parquet"
    )
    pd.DataFrame({"x": [[1, 2]] * 4, "label": [0, 1, 0, 1]}).to_parquet(tmp_path / "list.parquet")
    for name, words in (
        ("folder.csv", "is a folder; expected a file"),
        ("latin.csv", r"is not text in UTF-8 \(it has the byte 0xf6\).*iconv"),
        ("zero.parquet", "the file is empty"),
        ("text.parquet", "cannot be read as a parquet file"),
        ("day.parquet", r"is the date or time.*dataset.drop=day"),
        ("list.parquet", r"values of type list.*in column 'x'.*dataset.drop=x"),
        ("gone.csv", "does not exist"),
        ("a.xlsx", r"ending '.xlsx'; the endings that are read are .npz .*\.csv .*\.tsv .*\.parquet"),
    ):
        with pytest.raises(Misconfigured, match=words):
            files(str(tmp_path / name))
    with pytest.raises(Misconfigured, match=r"needs a file: --set dataset.path=FILE"):
        files()


def test_tables_of_different_columns_are_refused(frame, tmp_path):
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.drop(columns="age").to_csv(tmp_path / "b.csv", index=False)
    frame.assign(age="old").to_csv(tmp_path / "c.csv", index=False)
    for other, words in (("b", "no column 'age'"), ("c", "column 'age', row 1 is 'old'; expected a number")):
        with pytest.raises(Misconfigured, match=words):
            files(str(tmp_path / "a.csv"), str(tmp_path / f"{other}.csv"))
        clients = {name: hold_out_test(read_own_file(tmp_path / f"{name}.csv")) for name in ("a", other)}
        with pytest.raises(Misconfigured, match=f"client '{other}': .*'age'"):
            encoded(clients)


def test_rows_to_predict_for_come_from_a_file_without_labels(frame, tmp_path):
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.drop(columns="label").assign(day="2024-01-01").to_csv(tmp_path / "new.csv", index=False)
    samples = read_own_file(tmp_path / "a.csv", ReadSettings())
    encoding, _ = encoding_of(table_sums(samples.x), fills=False)
    assert np.array_equal(encode_rows(encoding, tmp_path / "new.csv"), encoding.encode(samples.x))
