"""`fedblade flower sums` and `agree` as an operator sees them."""

import json
import tomllib

import pytest

pytest.importorskip("flwr")
from fedblade.cli._main import exit_status
from support.table_wards import rows_of, write_csv

READ = ("--label", "outcome", "--missing", "fill", "--drop", "remark")


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    """Gives a command in a folder of its own: its exit status, what it printed, and its complaint."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = exit_status(["flower", *arguments], debug=False)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def wards(tmp_path):
    for k, name in enumerate(("north", "south", "west")):
        write_csv(tmp_path / f"{name}.csv", rows_of(k))


@pytest.mark.usefixtures("wards")
def test_a_hospital_sees_what_leaves_and_that_nothing_was_sent(cli, tmp_path):
    status, printed, _ = cli("sums", "north.csv", "--client", "0", "--seed", "0", *READ)
    assert status == 0
    assert list(tmp_path.glob("*.json")) == []
    lines = printed.splitlines()
    assert lines[0] == "client 0: sums over 24 training rows; 6 test rows, held out by seed 0, in no sum"
    cells = {line.split()[0]: line for line in lines[2:7]}
    assert cells.keys() == {"id", "age", "town", "pressure", "site"}
    assert cells["id"].endswith("24  no text, because every row has another one")
    assert cells["town"].endswith("texts Lima, Oslo, Łódź")
    assert "mean " in cells["age"]
    assert lines[-2] == "labels, without their counts: ill, well"
    assert lines[-1].startswith("Nothing was written or sent.")
    status, again, _ = cli("sums", "north.csv", "--client", "0", "--seed", "0", *READ, "--out", "north.json")
    assert again.splitlines()[-2:] == [
        "Nothing was sent. The file is text: read it, then give it to the coordinator.",
        "north.json",
    ]
    assert again.splitlines()[:-2] == lines[:-1]


def test_few_rows_are_pointed_out(cli, tmp_path):
    write_csv(tmp_path / "few.csv", rows_of(0)[:5])
    printed = cli("sums", "few.csv", "--client", "0", "--seed", "0", *READ)[1]
    assert "watch out: sums over so few rows tell much about each of them (4 rows)" in printed


def test_patients_with_several_rows_are_asked_about(cli, tmp_path):
    write_csv(tmp_path / "visits.csv", [(f"P{i // 3:02}", *row[1:]) for i, row in enumerate(rows_of(0, 60))])
    printed = cli("sums", "visits.csv", "--client", "0", "--seed", "0", *READ)[1]
    assert "texts 20 (names of people?): P00, P01, " in printed


def test_a_column_of_few_values_and_texts_of_one_row_are_pointed_out(cli, tmp_path):
    folder = tmp_path / "ward"
    rows = [(*row[:3], "7" if i < 9 else "", "AB"[i == 5], *row[5:]) for i, row in enumerate(rows_of(0))]
    write_csv(folder / "train.csv", rows)
    write_csv(folder / "test.csv", rows)
    printed = cli("sums", str(folder), "--client", "0", *READ)[1]
    assert [line for line in printed.splitlines() if line.startswith("watch out")] == [
        "watch out: column 'pressure' has 9 values, and sums over so few tell much about each of them",
        "watch out: column 'site' has texts that one row alone has, and they leave too: B",
    ]
    write_csv(folder / "train.csv", rows_of(0))
    assert "watch out" not in cli("sums", str(folder), "--client", "0", *READ)[1]


@pytest.mark.usefixtures("wards")
def test_from_tables_to_an_app(cli, tmp_path):
    for k, name in enumerate(("north", "south", "west")):
        assert cli("sums", f"{name}.csv", "--client", str(k), "--seed", "0", *READ, "--out", f"{name}.json")[0] == 0
    (tmp_path / "own.toml").write_text(
        'dataset.name = "files"\nmodel.name = "mlp"\nmethod.name = "fedavg"\n'
        "federation = { num_clients = 4, clients_per_round = 3, rounds = 2 }\n"
    )
    own = ("--set", "flower.data=nodes", "--set", "flower.num_classes=3")
    assert cli("init", "app", "own.toml", *own)[0] == 0
    before = cli("digest", "app")[1]
    status, printed, _ = cli("agree", "app", "west.json", "north.json", "south.json")
    assert status == 0
    lines = printed.splitlines()
    assert lines[0].startswith("sums of 3 clients (0, 1 and 2), ")
    assert lines[1] == "read with --label outcome --missing fill --drop remark"
    assert any(line.split() == ["site", "no", "input:", "left", "out"] for line in lines)
    assert "3 classes: dead, ill, well" in lines
    assert any(line.startswith("client 3: no sums; may take part") for line in lines)
    assert "fedblade flower digest" in lines[-1]
    assert cli("digest", "app")[1] != before
    columns = tomllib.loads((tmp_path / "app" / "fedblade.toml").read_text())["flower"]["agreement"]["columns"]
    assert [column["name"] for column in columns] == ["age", "town", "pressure"]
    assert cli("agree", "app", "west.json", "north.json", "south.json")[1].endswith("stays as it is\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sums", "gone.csv", "--client", "0", "--seed", "0"), "'gone.csv' does not exist"),
        (("sums", "north.txt", "--client", "0", "--seed", "0"), "the endings that are read are .npz"),
        (("sums", "north.csv", "--client", "0", "--seed", "0"), "Name one of its columns: --label NAME. Choose from"),
        (("sums", "north.csv", "--client", "0", *READ), "Give the seed that draws them: --seed N"),
        (("sums", "north.csv", "--seed", "0", *READ), "--client"),
        (("sums", "north.csv", "--client", "-1", *READ), "--client"),
        (("sums", "north.csv", "--client", "0", "--seed", "0", "--missing", "drop"), "neither 'refuse' nor 'fill'"),
        (("sums", "north.csv", "--client", "0", "--seed", "0", *READ, "--out", "north.csv"), "is not overwritten"),
        (("sums", "north.csv", "--client", "0", "--seed", "0", *READ, "--out", "gone/a.json"), "cannot write"),
        (("agree", "nowhere", "a.json"), "'nowhere' holds no Flower app"),
        (("agree", "app", "gone.json"), "'gone.json' does not exist. Give the files that"),
        (("agree", "app", "north.csv"), "no valid JSON"),
        (("agree", "app", "gone.json", "gone.json"), "'gone.json' is given twice"),
        (("agree", "app"), "FILE.json"),
    ],
)
@pytest.mark.usefixtures("wards")
def test_mistakes_are_one_line(cli, arguments, said):
    cli("init", "app", "--set", "dataset=files", "--set", "num_clients=3", "--set", "clients_per_round=3")
    status, printed, error = cli(*arguments)
    assert (status, printed) == (2, "")
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.usefixtures("wards")
def test_what_a_file_from_elsewhere_says_does_not_act_on_the_terminal(cli, tmp_path):
    cli("sums", "north.csv", "--client", "0", "--seed", "0", *READ, "--out", "north.json")
    table = json.loads((tmp_path / "north.json").read_text())
    table["columns"]["town"]["values"] = ["a\nerror: all is lost", "b"]
    (tmp_path / "north.json").write_text(json.dumps(table))
    cli("init", "app", "--set", "dataset=files", "--set", "seed=0", "--set", "num_clients=10")
    status, printed, _ = cli("agree", "app", "north.json")
    assert status == 0
    assert "an input for each of a\\nerror: all is lost, b" in printed
