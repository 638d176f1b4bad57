"""What a hospital tells before a run: what is in the file, and what a file from elsewhere may not hold."""

import json
import stat

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.data.own_files import ReadSettings, hold_out_test, read_own_file
from fedblade.flower.sums_file import read_sums_file, sums_of, write_sums_file
from support.table_wards import FILL, rows_of, write_csv


@pytest.fixture
def ward(tmp_path):
    return write_csv(tmp_path / "ward.csv", rows_of(0))


def test_sums_are_those_of_the_rows_that_a_run_trains_on(ward, tmp_path):
    file = sums_of(str(ward), 2, 5, FILL)
    train = hold_out_test(read_own_file(ward, FILL), (5, 2))
    ages = train.x.columns["age"].tolist()
    assert (file.sums.rows, file.sums.test_rows, file.seed) == (24, 6, 5)
    assert file.sums.columns.columns["age"].total == sum(ages)
    assert file.sums.columns.columns["age"].squares == sum(age * age for age in ages)
    assert file.sums.columns.columns["town"].values == tuple(sorted({*train.x.columns["town"]} - {""}))
    assert file.sums.labels == ("ill", "well")
    write_sums_file(tmp_path / "sums.json", file)
    assert read_sums_file(tmp_path / "sums.json") == file
    assert stat.S_IMODE((tmp_path / "sums.json").stat().st_mode) == 0o600


def test_no_cell_is_in_the_file_but_categories_and_classes(ward, tmp_path):
    write_sums_file(tmp_path / "sums.json", sums_of(str(ward), 0, 0, FILL))
    text = (tmp_path / "sums.json").read_text()
    texts = [text for line in json.loads(text)["columns"].values() for text in line.get("values") or ()]
    assert sorted(texts) == ["A", "Lima", "Oslo", "Łódź"]
    assert not any(row[0] in text for row in rows_of(0)), "names of rows"
    assert set(json.loads(text)["columns"]["age"]) == {"count", "total", "squares", "all_different"}


def test_a_file_is_not_overwritten(ward, tmp_path):
    (tmp_path / "sums.json").write_text("mine")
    with pytest.raises(Misconfigured, match="exists, and is not overwritten"):
        write_sums_file(tmp_path / "sums.json", sums_of(str(ward), 0, 0, FILL))
    assert (tmp_path / "sums.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("change", "settings", "said"),
    [
        (lambda rows: rows, ReadSettings("gone"), "has no label column 'gone'. Name one of its columns: --label NAME"),
        (lambda rows: rows, ReadSettings("outcome"), "row 5 has no value .*--drop town.*--missing fill"),
        (lambda rows: [(f"{i % 150}", *row[1:]) for i, row in enumerate(rows * 10)], FILL, ""),
        (lambda rows: [(f"p{i % 150}", *row[1:]) for i, row in enumerate(rows * 10)], FILL, "'id' has more than 100"),
        (lambda rows: [(f"p{max(i, 2)}", *row[1:]) for i, row in enumerate(rows)], FILL, "nearly all different"),
        (lambda rows: [(*row[:-1], f"Person {i}") for i, row in enumerate(rows)], FILL, "30 samples have 30 diff"),
        (lambda rows: [(*row[:-1], str(100 + i)) for i, row in enumerate(rows)], FILL, "30 different labels up to 129"),
        (lambda rows: [("a\x1bb", *row[1:]) for row in rows[:20]] + rows[20:], FILL, "texts of 1 to 1000 printable"),
        (lambda rows: [(row[0], "1e200", *row[2:]) for row in rows], FILL, "too large to be squared.*--drop age"),
        (lambda _: [], FILL, "names of columns but no rows"),
    ],
)  # fmt: skip
def test_what_a_run_refuses_is_refused_before_anything_is_told(change, settings, said, tmp_path):
    ward, out = write_csv(tmp_path / "ward.csv", change(rows_of(0))), tmp_path / "sums.json"
    if not said:
        write_sums_file(out, sums_of(str(ward), 0, 0, settings))
        return
    with pytest.raises(Misconfigured, match=said):
        write_sums_file(out, sums_of(str(ward), 0, 0, settings))
    assert not out.exists()


def test_the_seed_is_needed_where_test_samples_are_drawn(ward, tmp_path):
    with pytest.raises(Misconfigured, match=r"a fifth of its rows is held out .* --seed N"):
        sums_of(str(ward), 0, None, FILL)
    folder = write_csv(tmp_path / "north" / "train.csv", rows_of(0)).parent
    write_csv(folder / "test.csv", rows_of(1))
    file = sums_of(str(folder), 0, None, FILL)
    assert (file.seed, file.sums.rows, file.sums.test_rows) == (None, 30, 30)


def test_arrays_tell_the_names_of_their_classes_alone(tmp_path):
    x = np.zeros((6, 4))
    np.savez(tmp_path / "named.npz", x=x, y=np.array(["cat", "dog"] * 3))
    np.savez(tmp_path / "numbered.npz", x=x, y=np.array([0, 1] * 3))
    write_sums_file(tmp_path / "sums.json", sums_of(str(tmp_path / "named.npz"), 0, 0, ReadSettings()))
    assert json.loads((tmp_path / "sums.json").read_text()) == {
        "format": 1, "client": 0, "seed": 0, "rows": 5, "test_rows": 1, "labels": ["cat", "dog"],
    }  # fmt: skip
    with pytest.raises(Misconfigured, match=r"holds arrays, and its labels are numbers.*without sums"):
        sums_of(str(tmp_path / "numbered.npz"), 0, 0, ReadSettings())


DROPPED = object()
AGE = ("columns", "age")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("format",), 2, "format = 2; expected 1"),
        (("format",), True, "format = True"),
        (("client",), -1, "client = -1; expected a whole number from 0"),
        (("client",), "0", "client = '0'"),
        (("client",), True, "client = True"),
        (("seed",), 0.5, "seed = 0.5"),
        (("rows",), 0, "rows = 0"),
        (("rows",), 10**300, "rows = a value of type int"),
        (("labels",), [], "labels = \\[\\]"),
        (("labels",), ["ill", 1], "all whole numbers, or all names"),
        (("labels",), ["well", "ill"], "sorted order"),
        (("labels",), ["ill", "ill"], "different texts"),
        (("labels",), [2, 1], "ascending"),
        (("labels",), [10**30], "labels"),
        (("labels",), ["a" * 2000], "labels = "),
        (("labels",), list(range(10**6)), "at most 10,000 entries"),
        (("label",), 3, "label = 3"),
        (("label",), DROPPED, "has no 'label'"),
        (("missing",), "ignore", "missing = 'ignore'; expected 'refuse' or 'fill'"),
        (("drop",), "id", "drop = 'id'; expected a list"),
        (("more",), 1, "unknown key 'more'"),
        (("columns",), [], "columns = "),
        (("columns",), {}, "columns"),
        (
            ("columns", "a\x1b[31mb"),
            {"count": 0, "values": [], "all_different": True},
            "has a column .*; expected names of 1 to 1000 printable characters. Rename",
        ),
        (
            ("columns", "a\ud800"),
            {"count": 0, "values": [], "all_different": True},
            "has a column .*; expected names of 1 to 1000 printable characters. Rename",
        ),
        (
            ("columns", ""),
            {"count": 0, "values": [], "all_different": True},
            "has a column .*; expected names of 1 to 1000 printable characters. Rename",
        ),
        (AGE, 3, "column 'age', is 3; expected a table"),
        ((*AGE, "count"), 25, "count = 25; expected a whole number from 0 to 24"),
        ((*AGE, "count"), 2.0, "count = 2.0"),
        ((*AGE, "total"), None, "total = None; expected a finite number"),
        ((*AGE, "total"), 1e300, "expected the sums over 24 numbers and over their squares"),
        ((*AGE, "squares"), -1.0, "expected the sums over 24 numbers"),
        ((*AGE, "squares"), DROPPED, "has no 'squares'"),
        ((*AGE, "all_different"), 1, "all_different = 1; expected true or false"),
        ((*AGE, "values"), ["1"], "has sums and categories"),
        (("columns", "town", "values"), ["Oslo", "Lima"], "sorted order"),
        (("columns", "town", "values"), ["Lima", "Lima"], "different texts"),
        (("columns", "town", "values"), ["", "Lima"], "1 to 1000 printable characters"),
        (("columns", "town", "values"), ["Li\u202ema"], "1 to 1000 printable characters"),
        (("columns", "town", "values"), [str(i) for i in range(10**6)], "at most 100 entries"),
        (("columns", "town", "count"), 2, "the different texts of 2 rows"),
    ],
)
def test_a_field_from_elsewhere_may_hold_anything(place, value, said, ward, tmp_path):
    path = tmp_path / "sums.json"
    write_sums_file(path, sums_of(str(ward), 0, 0, FILL))
    table = json.loads(path.read_text())
    *outer, last = place
    inner = table
    for key in outer:
        inner = inner[key]
    if value is DROPPED:
        del inner[last]
    else:
        inner[last] = value
    path.write_text(json.dumps(table))
    with pytest.raises(Misconfigured, match=said) as failed:
        read_sums_file(path)
    assert str(path) in str(failed.value)
    assert str(failed.value).endswith("Make the file anew: fedblade flower sums.")
    assert str(failed.value).isprintable()
    assert len(str(failed.value)) < 600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 10**6,
        b'{"rows": NaN}',
        b'{"rows": Infinity}',
        b"1" * 10**5,
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"x"',
    ],
)
def test_what_is_no_file_of_sums_is_told_in_a_line(content, tmp_path):
    path = tmp_path / "sums.json"
    path.write_bytes(content)
    with pytest.raises(Misconfigured, match="Make the file anew"):
        read_sums_file(path)


def test_a_huge_file_is_not_read_whole(tmp_path):
    path = tmp_path / "sums.json"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(Misconfigured, match="has more than 16 MiB"):
        read_sums_file(path)
    with pytest.raises(Misconfigured, match=r"does not exist. Give the files that"):
        read_sums_file(tmp_path)


def test_numbers_are_stored_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        (repr(float(x)), f"{k % 2}")
        for k, x in enumerate(rng.standard_normal(50) * 10.0 ** rng.integers(-170, 150, 50))
    ]
    ward = write_csv(tmp_path / "ward.csv", [*rows, ("0.1", "0"), ("1e-200", "1")], ("x", "label"))
    file = sums_of(str(ward), 0, 0, ReadSettings())
    write_sums_file(tmp_path / "sums.json", file)
    assert read_sums_file(tmp_path / "sums.json") == file
