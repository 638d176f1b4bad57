"""What each command prints and writes when all is well."""

import json
import re
import tomllib
import xml.etree.ElementTree as ET
from datetime import date
from itertools import product
from pathlib import Path

import pytest

from fedblade.core.tensorfile import read_tensors
from fedblade.core.tree import tree_digest
from fedblade.hardness import measure

KINDS = ("methods", "losses", "heads", "models", "datasets", "partitions", "presets", "metrics", "engines")
METHODS = ("fedavg", "fedprox", "fedetf", "fedblade", "feddecorr")
REGULARISERS = ("feddecorr", "lddecorr")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def read_json(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_run_writes_a_run_and_ends_with_its_folder(cli, small, tmp_path):
    answer = cli("run", *small, "--set", "method=fedavg", "--out", "mine").done()
    assert answer.last == "mine"
    summary = read_json(tmp_path / "mine" / "summary.json")
    assert (summary["status"], summary["rounds"], summary["method"]) == ("finished", 3, "fedavg")
    assert f"{summary['final_accuracy']:.2f} %" in answer.out


def test_run_without_a_folder_makes_one_from_date_method_and_number(cli, small, tmp_path):
    stem = f"runs/{date.today().isoformat()}-fedprox"
    lasts = [cli("run", *small, "--set", "method=fedprox").done().last for _ in range(2)]
    assert lasts == [f"{stem}-1", f"{stem}-2"]
    assert all((tmp_path / last / "summary.json").is_file() for last in lasts)


def test_options_stand_for_keys(cli, small, tmp_path):
    cli("run", *small, "--seed", 5, "--engine", "sequential", "--device", "cpu", "--out", "mine").done()
    config = tomllib.loads((tmp_path / "mine" / "config.toml").read_text())
    assert (config["seed"], config["engine"], config["device"]) == (5, "sequential", "cpu")


def test_a_configuration_file_is_run(cli, small, tmp_path):
    cli("run", *small, "--out", "first").done()
    cli("run", "first/config.toml", "--out", "second").done()
    same = [(tmp_path / name / "config.toml").read_text() for name in ("first", "second")]
    assert same[0] == same[1]


def test_quiet_prints_the_result_and_the_folder_and_nothing_else(cli, small):
    result, folder = cli("run", *small, "--quiet", "--out", "mine").done().out.splitlines()
    assert result.startswith("fedblade: final accuracy ")
    assert folder == "mine"


@pytest.mark.parametrize("name", ["a [red] b", "x:cat:y", "a" * 120, "ünï"])
def test_the_last_line_is_the_folder_whatever_its_name(cli, small, tmp_path, name):
    answer = cli("run", *small, "--out", name).done()
    assert answer.last == name
    assert (tmp_path / name / "summary.json").is_file()


def test_the_first_run_on_nothing_works_from_a_fresh_process(fresh_cli, small):
    assert fresh_cli("run", *small, "--out", "mine").done().last == "mine"


def test_output_into_a_file_has_no_control_characters(cli, small):
    answers = [
        cli("run", *small, "--out", "one").done(),
        cli("compare", *small, "--methods", "fedavg,fedetf", "--seeds", "1", "--out", "two").done(),
        cli("partition").done(),
        cli("doctor").done(),
    ]
    for answer in answers:
        assert not CONTROL.search(answer.out)


def test_resume_of_a_missing_folder_starts_and_of_a_finished_run_ends_at_once(cli, small, tmp_path):
    first = cli("run", *small, "--resume", "--out", "mine").done()
    assert first.out.startswith("there was no run in 'mine'; a new one starts")
    history = (tmp_path / "mine" / "history.jsonl").read_bytes()
    again = cli("run", *small, "--resume", "--out", "mine").done()
    bare = cli("run", "--resume", "--out", "mine").done()
    assert first.last == again.last == bare.last == "mine"
    assert "finished" in again.out
    assert (tmp_path / "mine" / "history.jsonl").read_bytes() == history


def test_a_run_goes_back_to_a_round_in_a_folder_beside_it(cli, small, tmp_path):
    cli("run", *small, "--set", "checkpoint.every=1", "--set", "checkpoint.keep=2", "--out", "mine").done()
    back = cli("run", "--resume", "--from-round", "2", "--out", "mine").done()
    assert back.last == "mine-from-2"
    assert "goes on from round 2 of" in back.out
    model, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("mine", "mine-from-2"))
    assert model == again
    refused = cli("run", "--resume", "--from-round", "1", "--out", "mine").mistake()
    assert refused.endswith("Rounds to choose from: 2 and 3.")
    assert "needs the folder of that run" in cli("run", "--from-round", "2", "--out", "mine").mistake()


@pytest.mark.parametrize("source", [[], ["quickstart"]], ids=["nothing", "preset"])
def test_the_same_command_with_resume_is_the_same_run(cli, small, source):
    """Choosing `method` again must not lose what the preset says about that method."""
    command = ["run", *source, *small, "--set", "method=fedblade", "--resume", "--out", "mine"]
    assert cli(*command).done().last == cli(*command).done().last == "mine"


def compare(cli, small, *more):
    return cli("compare", *small, "--methods", "fedavg,fedprox+feddecorr", "--seeds", "1,2", "--out", "c", *more)


def test_compare_prints_a_table_and_ends_with_the_report(cli, small, tmp_path):
    answer = compare(cli, small).done()
    assert answer.last == "c/report.html"
    assert (tmp_path / answer.last).read_text().lower().startswith("<!doctype html>")
    for method in ("fedavg", "fedprox+feddecorr"):
        accuracies = [
            read_json(tmp_path / "c" / f"{method}-seed{seed}" / "summary.json")["last10_accuracy"] for seed in (1, 2)
        ]
        mean, spread = sum(accuracies) / 2, abs(accuracies[0] - accuracies[1]) / 2**0.5
        row = next(line for line in answer.out.splitlines() if line.strip().startswith(method[:7]))
        assert f"{mean:.2f} ± {spread:.2f}" in row
        assert "2/2" in row


def test_the_table_fits_eighty_columns(cli, small):
    text = compare(cli, small, "--quiet").done().out
    assert max(map(len, text.splitlines())) <= 80


def test_the_table_does_not_cut_names(cli, small):
    assert "…" not in compare(cli, small, "--quiet").done().out


def test_compare_again_skips_what_is_finished_and_does_what_is_missing(cli, small, tmp_path):
    compare(cli, small).done()
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("c/*/model.safetensors")}
    assert len(stamps) == 4
    missing = tmp_path / "c" / "fedavg-seed2"
    before = read_tensors(missing / "model.safetensors")[0]
    for path in sorted(missing.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert compare(cli, small).done().last == "c/report.html"
    assert tree_digest(read_tensors(missing / "model.safetensors")[0]) == tree_digest(before)
    kept = [path for path in stamps if path.parent != missing]
    assert {path: path.stat().st_mtime_ns for path in kept} == {path: stamps[path] for path in kept}


def test_compare_takes_the_presets_seeds(cli, small, tmp_path):
    cli("compare", *small, "--methods", "fedavg", "--out", "c").done()
    assert sorted(path.name for path in (tmp_path / "c").iterdir() if path.is_dir()) == [
        f"fedavg-seed{seed}" for seed in (1, 2, 3)
    ]


def test_compare_obeys_a_seed_that_was_set(cli, small, tmp_path):
    cli("compare", *small, "--methods", "fedavg", "--set", "seed=7", "--out", "c").done()
    assert [path.name for path in (tmp_path / "c").iterdir() if path.is_dir()] == ["fedavg-seed7"]


def test_a_method_named_twice_is_run_and_counted_once(cli, small):
    answer = cli("compare", *small, "--methods", "fedavg,fedavg", "--seeds", "1,1", "--out", "c").done()
    row = next(line for line in answer.out.splitlines() if line.strip().startswith("fedavg "))
    assert "1/1" in row


@pytest.mark.parametrize("kind", KINDS)
def test_list_names_what_there_is(cli, kind):
    rows = json.loads(cli("list", kind, "--json").done().out)
    names = [row["name"] for row in rows]
    assert names == sorted(set(names))
    assert names
    plain = cli("list", kind).done().out
    assert [line.split()[0] for line in plain.splitlines()] == names
    for row in rows:
        assert len(row["summary"]) > 10, row


def test_list_has_what_the_spine_promises(cli):
    def names(kind):
        return {row["name"] for row in json.loads(cli("list", kind, "--json").out)}

    assert names("methods") >= set(METHODS)
    assert names("datasets") >= {"digits", "arrays"}
    assert names("models") >= {"small_cnn", "mlp"}
    assert names("partitions") >= {"iid", "dirichlet", "pathological", "shards"}
    assert names("presets") >= {"quickstart"}
    assert names("metrics") >= {"accuracy", "erank_feature", "erank_proj", "nc1", "nc2"}


TWICE = {"fedblade+lddecorr", "feddecorr+feddecorr"}
COMBINATIONS = [name for pair in product(METHODS, REGULARISERS) if (name := "+".join(pair)) not in TWICE]


@pytest.mark.parametrize("name", [*METHODS, *COMBINATIONS, "fedprox+feddecorr+lddecorr"])
def test_show_gives_the_card_of_every_method(cli, name):
    text = cli("show", name).done().out
    assert text.startswith(name)
    for heading in ("Knobs", "Terms", "Training", "What travels", "State", "Personal models", "Secure sums", "Engines"):
        assert f"\n{heading}" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "Objective" in text
    assert re.search(r"[\d,]+ bytes down, [\d,]+ bytes up", text)


def test_show_writes_knobs_that_a_configuration_file_takes(cli):
    text = cli("show", "fedblade").done().out
    knobs = text.partition("Knobs")[2].partition("\n")[2].partition("\n\n")[0]
    parsed = tomllib.loads("\n".join(line.strip() for line in knobs.splitlines()))
    assert parsed["lambda_decorr"] == 0.005
    assert parsed["pba"]["tau"] == 0.1


@pytest.mark.parametrize("name", ["fedblade", "fedavg+feddecorr", "fedetf-ft"])
def test_show_gives_the_card_as_json(cli, name):
    card = json.loads(cli("show", name, "--json").done().out)
    assert card["name"] == name
    assert {knob["key"]: knob["default"] for knob in card["knobs"]}
    assert card["traffic"]["down_model"] > 0
    assert [payload["name"] for payload in card["traffic"]["up_model"]] == ["delta", "buffers", "counters", "weight"]
    assert card["secure"] == {"sends": True, "maxima": ["counters"], "single": []}
    assert card["engines"]


def test_partition_prints_the_table_and_draws_well_formed_svg(cli, small, tmp_path):
    answer = cli("partition", *small, "--set", "min_size=1", "--plot", "sub/map.svg").done()
    assert answer.last == "sub/map.svg"
    assert ET.parse(tmp_path / "sub" / "map.svg").getroot().tag.endswith("svg")
    rows = [line.split("│") for line in answer.out.splitlines() if re.match(r"\s*\d+ │", line)]
    numbers = [[0 if cell.strip() == "·" else int(cell) for cell in row] for row in rows]
    assert [row[0] for row in numbers] == list(range(6))
    assert all(row[1] == sum(row[2:]) for row in numbers)
    assert sum(row[1] for row in numbers) == 1348
    found = measure([row[2:] for row in numbers], 3)
    text = " ".join(answer.out.split())
    assert found.sentence() in text
    assert all(f"{what} {value}" in text for what, value in found.facts())


def test_partition_cuts_a_long_table_and_says_so(cli):
    answer = cli("partition", "--set", "partition=iid", "--set", "num_clients=50").done()
    assert "20 more clients" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_partition_shows_a_population_without_a_table(cli, tmp_path):
    """A million clients: the first ones as a table, a thousand in the picture, nobody else is asked."""
    many = ("partition=drawn", "samples=12", "classes_per_client=3", "num_clients=1000000")
    settings = [part for each in many for part in ("--set", each)]
    answer = cli("partition", *settings, "--plot", "map.svg").done()
    assert "999970 more clients; --plot shows the first 1000" in answer.out
    text = " ".join(answer.out.split())
    assert "1000000 clients, 12 to 12 samples each, 3 to 3 of 10 classes each (the first 1000 clients)" in text
    assert "clients overlap" in text
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "first 1000 of 1000000 clients" in (tmp_path / "map.svg").read_text()


def test_report_does_without_the_table_of_a_population_that_stores_none(cli, small, tmp_path):
    large = ("--set", "partition=drawn", "--set", "samples=4", "--set", "num_clients=2000")
    cli("run", *small, *large, "--out", "mine").done()
    cli("report", "mine", "--out", "page.html").done()
    page = (tmp_path / "page.html").read_text()
    assert "label-map" not in page
    assert "Of the first 1000 of 2000 clients: a client sees 2.0 of 10 classes in effect." in page


def test_report_writes_a_page_and_figures(cli, small, tmp_path):
    cli("run", *small, "--out", "mine").done()
    answer = cli(
        "report", "mine", "--out", "page.html", "--figures", "figures", "--formats", "svg", "--columns", "1"
    ).done()
    assert answer.last == "page.html"
    assert "<table" in (tmp_path / "page.html").read_text()
    figures = list((tmp_path / "figures").glob("*.svg"))
    assert figures
    for figure in figures:
        ET.parse(figure)
    assert cli("report", "mine").done().last == "mine/report.html"


def test_a_run_with_a_report_in_its_folder_can_be_resumed(cli, small):
    cli("run", *small, "--out", "mine").done()
    cli("report", "mine").done()
    assert cli("run", "--resume", "--out", "mine").done().last == "mine"


def test_doctor_says_what_is_here(cli):
    text = cli("doctor").done().out
    for word in ("fedblade", "python", "torch", "gpu", "digits", "onnx"):
        assert word in text


def test_doctor_says_how_to_get_what_is_missing(fresh_cli, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")
    answer = fresh_cli("doctor", PYTHONPATH=str(tmp_path)).done()
    assert "pip install 'fedblade[data]'" in answer.out
