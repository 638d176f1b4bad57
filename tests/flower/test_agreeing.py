"""The agreement of all hospitals: made of files of sums, and written into an app without touching anything else."""

import json
import tomllib

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.data.own_files import ReadSettings
from fedblade.flower.agreeing import agree
from fedblade.flower.agreement import Agreement
from fedblade.flower.app import read_app, split_tables
from fedblade.flower.app_folder import find_app
from fedblade.flower.new_app import make_app
from fedblade.flower.node_folder import NodeFolder
from fedblade.flower.sums_file import sums_of, write_sums_file
from support.table_wards import FILL, HEADER, OUTCOMES, rows_of, write_csv

FOUR = {"num_clients": 4, "clients_per_round": 4, "dataset": "files"}


@pytest.fixture
def told(tmp_path):
    """Writes the file of sums of a client, and gives its path."""

    def write(client, rows=None, settings=FILL, seed=1, header=HEADER):
        ward = write_csv(tmp_path / "wards" / f"{client}.csv", rows or rows_of(client), header)
        path = tmp_path / f"{client}-{len(list(tmp_path.glob('*.json')))}.json"
        write_sums_file(path, sums_of(str(ward), client, seed, settings))
        return path

    return write


@pytest.fixture
def app(tmp_path):
    make_app(tmp_path / "app", None, FOUR)
    return find_app(tmp_path / "app")


def test_it_is_written_into_the_app_and_read_back(app, told):
    before = tomllib.loads((app.path / "fedblade.toml").read_text())
    files = [told(client) for client in (2, 0, 1)]
    found = agree(app, files)
    config, deployment = read_app(app.path)
    assert (deployment.agreement, deployment.data, deployment.num_classes) == (found.agreement, "nodes", 3)
    assert found.agreement.clients == (0, 1, 2)
    assert found.agreement.classes == OUTCOMES
    assert (found.agreement.seed, config.split_seed) == (1, 1)
    assert found.notes[-1].startswith("client 3: no sums; may take part")
    after = tomllib.loads((app.path / "fedblade.toml").read_text())
    table = after["flower"].pop("agreement")
    assert after == before | {"flower": before["flower"] | {"data": "nodes", "num_classes": 3}}
    assert (table["label"], table["missing"], table["drop"], table["left_out"]) == (
        "outcome", "fill", ["remark"], ["id", "site"],
    )  # fmt: skip
    assert [set(column) - {"name"} for column in table["columns"]] == [{"mean", "std"}, {"values"}, {"mean", "std"}]
    # The order in which files are given plays no part, and the same agreement changes nothing.
    stored = (app.path / "fedblade.toml").read_bytes()
    assert not agree(app, files[::-1]).changed
    assert (app.path / "fedblade.toml").read_bytes() == stored


FULL = [row for row in rows_of(1) if row[2]]


def test_an_app_of_an_app_keeps_the_agreement(app, told, tmp_path):
    agree(app, [told(0), told(1)])
    make_app(tmp_path / "second", str(app.path / "fedblade.toml"), {"flower.attempts": 9})
    first, second = (read_app(folder)[1] for folder in (app.path, tmp_path / "second"))
    assert second == first.model_copy(update={"attempts": 9})
    copy = find_app(tmp_path / "second")
    assert not agree(copy, [told(0), told(1)]).changed
    assert agree(copy, [told(0), told(1), told(2)]).changed


def test_names_of_columns_may_be_given_in_any_order(app, told):
    both = ReadSettings("outcome", "fill", drop=("remark", "site")), ReadSettings("outcome", "fill", ("site", "remark"))
    found = agree(app, [told(client, settings=settings) for client, settings in enumerate(both)])
    assert found.agreement.settings == both[0]
    with pytest.raises(Misconfigured, match=r"--label 'outcome', and .* with --label 'town'"):
        agree(app, [told(0), told(1, settings=ReadSettings("town", "fill", drop=("remark",)), rows=FULL)])


SECTION = """
[flower]  # ours
# all of them
quorum = 1.0
num_classes = 3  # three
data = "shares"  # not yet
"""
DOTTED = 'flower.quorum = 1.0\nflower.data = "shares"  # ours\nflower.num_classes = 0\n'


@pytest.mark.parametrize("section", [SECTION, ""])
def test_comments_and_other_keys_stay(section, app, told):
    path = app.path / "fedblade.toml"
    rest = path.read_text().partition("[flower]")[0]
    assert "[stop]" in rest
    path.write_text("# our federation\n" + rest.replace("[stop]", f"{section}\n[stop]"))
    agree(app, [told(0), told(1)])
    once = path.read_text()
    agree(app, [told(0), told(1), told(2)])
    twice = path.read_text()
    kept = [
        "[flower]  # ours",
        "# all of them",
        "quorum = 1.0",
        "num_classes = 3  # three",
        'data = "nodes"  # not yet',
    ]
    for line in ("# our federation", *(kept if section else ())):
        assert once.splitlines().count(line) == twice.splitlines().count(line) == 1, line
    assert once != twice
    assert twice.count("Begin of what") == 1
    assert once.partition("# Begin of what")[0] == twice.partition("# Begin of what")[0]


def test_texts_of_tables_do_not_end_the_block(app, told):
    end = "# End of what `fedblade flower agree` wrote."
    file = told(0)
    table = json.loads(file.read_text())
    table["columns"]["town"]["values"] = ['"]\n[flower]\ndata = "shares"', end, f"x\n{end}\n"]
    file.write_text(json.dumps(table))
    agree(app, [file])
    assert (app.path / "fedblade.toml").read_text().endswith(f"\n{end}\n")
    assert not agree(app, [file]).changed
    assert agree(app, [told(0)]).changed
    assert read_app(app.path)[1].agreement.encoding.columns[1].values == ("Lima", "Oslo", "Łódź")


def test_dotted_keys_are_changed_in_place(app, told):
    path = app.path / "fedblade.toml"
    path.write_text(DOTTED + path.read_text().partition("[flower]")[0])
    agree(app, [told(0), told(1)])
    assert path.read_text().startswith('flower.quorum = 1.0\nflower.data = "nodes"  # ours\nflower.num_classes = 3\n')
    assert read_app(app.path)[1].quorum == 1.0


@pytest.mark.parametrize(
    "table", ["flower = { quorum = 1.0 }\n", "[flower.agreement]\nclients = [0]\nrows = 1\n", "flower = 3\n"]
)
def test_a_form_that_is_not_edited_is_refused_and_stays(table, app, told):
    path = app.path / "fedblade.toml"
    rest = path.read_text().partition("[flower]")[0]
    path.write_text(rest + table if table.startswith("[") else table + rest)
    before = path.read_text()
    with pytest.raises(Misconfigured, match=r"\[flower\]"):
        agree(app, [told(0), told(1)])
    assert path.read_text() == before


NUMBERS = [(*row[:2], "7", *row[3:]) for row in rows_of(1)]
CODES = [(*row[:-1], "3") for row in rows_of(1)]
DISTINCT = [(*row[:2], f"t{i}", *row[3:]) for i, row in enumerate(rows_of(1))]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([(0, {})], "are both of client 0; expected one file for each client"),
        ([(4, {})], r"is of client 4, and the app has clients 0 to 3 \(federation.num_clients\)"),
        ([(1, {"seed": 0})], "seed 0 draws, and the seed of the app is 1. Make the file anew with --seed 1"),
        ([(1, {"settings": ReadSettings("outcome", "fill")})], r"--drop 'remark', .*--drop ''; expected the same"),
        (
            [(1, {"rows": NUMBERS})],
            r"1.*\.json': column 'town' holds numbers in this table and text in .*--categories t",
        ),
        ([(1, {"rows": CODES})], "labels are names in .* and numbers in .*; expected one kind"),
        ([(1, {"rows": DISTINCT})], r"column 'town' has another text in every row of .*--drop town"),
        (
            [(1, {"rows": [row[:4] + row[5:] for row in rows_of(1)], "header": HEADER[:4] + HEADER[5:]})],
            r"1.*\.json': the table has no column 'site', and the one before has one",
        ),
    ],
)
def test_files_that_do_not_fit_are_named(others, said, app, told):
    before = (app.path / "fedblade.toml").read_bytes()
    files = [told(0), *(told(client, **given) for client, given in others)]
    with pytest.raises(Misconfigured, match=said):
        agree(app, files)
    assert (app.path / "fedblade.toml").read_bytes() == before


def test_sums_that_overflow_together_are_refused(app, told):
    files = [told(0), told(1)]
    for file in files:
        table = json.loads(file.read_text())
        table["columns"]["age"] |= {"total": 1e150, "squares": 1.7e308}
        file.write_text(json.dumps(table))
    with pytest.raises(Misconfigured, match="the sums of column 'age' are too large"):
        agree(app, files)


def test_the_number_of_classes_of_the_user_is_kept_or_refused(app, told):
    path, two = app.path / "fedblade.toml", [told(0), told(1)]
    text = path.read_text()
    path.write_text(text.replace("num_classes = 0", "num_classes = 5"))
    with pytest.raises(Misconfigured, match="num_classes = 5, and the files have 3 classes"):
        agree(app, two)
    numbered = [(*row[:-1], "2" if row[-1] == "ill" else "0") for row in rows_of(0)]
    assert agree(app, [told(0, numbered)]).num_classes == 5
    path.write_text(text)
    assert agree(app, [told(0, numbered)]).num_classes == 3
    assert agree(app, two).num_classes == 3


def test_an_app_whose_run_goes_on_is_not_changed(app, told, tmp_path):
    files, run = [told(0), told(1)], tmp_path / "run"
    app.local.mkdir()
    app.last_run.write_text(f'run-dir = "{run}"\nresume = false\n')
    agree(app, files[:1])
    run.mkdir()
    (run / "config.toml").write_text("")
    with pytest.raises(Misconfigured, match="has begun with this app and is not finished"):
        agree(app, files)
    agree(app, files[:1])
    (run / "summary.json").write_text('{"status": "finished"}')
    assert agree(app, files).changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 3}, "leaves out the test samples that seed 3 draws, and the seed of the run is 1"),
        ({"classes": ["a", "b"]}, "has 2 classes, and flower.num_classes is 3"),
        ({"classes": ["b", "a"]}, "sorted order"),
        ({"more": 1}, "unknown key 'more'"),
        ({"columns": []}, "expected a list of 1 to 10,000 columns"),
        (
            {"columns": [{"name": "age", "mean": 1.0, "std": 0.0}]},
            r"columns\[0\] has std = 0.0; expected a number above",
        ),
        ({"columns": [{"name": "age", "mean": float("nan"), "std": 1.0}]}, "mean = nan; expected a finite number"),
        ({"columns": [{"name": "age", "mean": 1.0}]}, "has no 'std'"),
        ({"columns": [{"name": "town", "values": ["a"]}]}, "at least two categories"),
        ({"columns": [{"name": "town", "values": [str(i) for i in range(101)]}]}, "at most 100 entries"),
        ({"columns": [{"name": "id", "mean": 1.0, "std": 1.0}]}, "names a column twice"),
        ({"label": ""}, "label = ''"),
        ({"clients": [-1]}, "expected numbers of clients"),
    ],
)
def test_an_agreement_that_was_changed_by_hand_is_checked(change, said, app, told):
    agree(app, [told(0), told(1)])
    tables = tomllib.loads((app.path / "fedblade.toml").read_text())
    tables["flower"]["agreement"] |= change
    with pytest.raises(Misconfigured, match=said) as failed:
        split_tables(tables)
    assert "fedblade flower agree" in str(failed.value)


def test_an_agreement_is_for_nodes_with_data_of_their_own(app, told):
    agree(app, [told(0), told(1)])
    tables = tomllib.loads((app.path / "fedblade.toml").read_text())
    tables["flower"]["data"] = "shares"
    with pytest.raises(Misconfigured, match=r"is for nodes with data of their own, and flower.data is 'shares'"):
        split_tables(tables)


def test_an_agreement_is_read_as_it_was_written(app, told):
    found = agree(app, [told(0), told(1)]).agreement
    assert Agreement.of(found.table()) == found
    assert hash(found) == hash(Agreement.of(found.table()))


def test_a_node_has_the_agreement_of_the_app_that_it_has_pinned(app, told, tmp_path):
    pytest.importorskip("flwr")
    from fedblade.flower._flwr_internals.apps import app_bytes
    from fedblade.flower._own_parts import Approval

    folder = NodeFolder(tmp_path / "node")
    assert Approval(app_bytes(app.path), folder, []).agreement is None
    first = app_bytes(app.path)
    found = agree(app, [told(0), told(1)]).agreement
    pinned = app_bytes(app.path)
    assert pinned != first
    assert Approval(pinned, folder, []).agreement == found
