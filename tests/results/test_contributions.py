"""What a run on nodes says of its origin: who contributed, how long updates were, and whose claim its accuracy is."""

import json

import pytest

from fedblade.flower._journal import RunJournal
from fedblade.flower._server import deployed_setup
from fedblade.report import build_report
from fedblade.results import CLAIMED_NOTE, comparison_rows, comparison_table, contributions, latex, markdown, read_runs
from fedblade.runs import RunJob
from fedblade.watch._folder import WatchedFolder
from fedblade.watch._run_view import run_lines
from support.node_runs import config_of
from support.three_wards import CHANGES, apart, saved, ward


def executed(folder, **terms):
    """A run of three wards in a run folder; client 2 does not answer in the second of four rounds."""
    files = saved(folder, [ward(k) for k in range(3)])
    config = config_of("fedavg", rounds=4, **CHANGES)
    run = apart(folder, files, config=config, **({"test": files[0]} if terms else {}))
    late = {"kind": "train", "round": 1, "client": 2}
    run.transport.tamper = lambda request, reply: (
        [] if late.items() <= ({"kind": request.kind} | dict(request.facts)).items() else [reply]
    )
    journal = RunJournal(folder / "run")

    def make_setup():
        journal.begin()
        return deployed_setup(config, run.deployment, run.transport, folder / "run", journal)

    return RunJob(config, folder / "run", make_setup=make_setup).execute()


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return executed(tmp_path_factory.mktemp("claimed"))


def test_contributions_are_read_from_history_and_journal(result):
    (record,) = read_runs([result.path])
    found = contributions(record)
    assert [(each.client, each.asked, each.added, each.missing) for each in found] == [
        (0, 4, 4, 0),
        (1, 4, 4, 0),
        (2, 4, 3, 1),
    ]
    assert [len(each.lengths) for each in found] == [4, 4, 3]
    assert all(0 < length < 1 for each in found for length in each.lengths)


def test_the_report_shows_who_contributed(result, tmp_path):
    page = build_report([result.path], tmp_path / "page.html").read_text()
    section = page[page.index('id="contributors"') :]
    assert "Who contributed?" in section
    assert "flower.max_norm" in section
    assert "client 2 in 1 of 4" in page
    assert "is claimed: the nodes have measured it by themselves" in page


def test_a_run_on_one_machine_has_no_such_section(tmp_path):
    config = config_of("fedavg", rounds=1)
    RunJob(config, tmp_path / "run").execute()
    (record,) = read_runs([tmp_path / "run"])
    assert record.history[0].contributors == record.history[0].clients != ()
    assert contributions(record) == []
    assert not record.claimed
    assert "Who contributed?" not in build_report([tmp_path / "run"], tmp_path / "page.html").read_text()


def test_tables_mark_a_claimed_accuracy(result, tmp_path):
    rows = comparison_rows([result.path])
    for medium in ("terminal", "page", "paper"):
        table = comparison_table(rows, medium)
        assert sum(cell.mark == "‡" for cell in table.rows[0]) == 2
        assert any(CLAIMED_NOTE in note for note in table.notes)
    assert f"{rows[0].final_mean:.2f}‡" in markdown(rows)
    assert r"\ddag{} claimed" in latex(rows)
    checked = comparison_rows([executed(tmp_path, test=True).path])
    assert CLAIMED_NOTE not in comparison_table(checked, "terminal").notes


def test_watch_says_that_an_accuracy_is_claimed(result):
    watched = WatchedFolder(result.path)
    watched.refresh()
    text = "\n".join(line.plain for line in run_lines(watched.runs[0], 0.0, 120, None))
    assert "claimed test accuracy, %" in text


def test_odd_lines_of_history_and_journal_do_no_harm(result, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.toml", "history.jsonl", "partition.json"):
        (folder / name).write_text((result.path / name).read_text())
    events = [
        {"event": "updates", "kind": "train", "round": 1, "lengths": {"0": "long", "x": 1.0, "1": 0.5}},
        {"event": "updates", "kind": "train", "round": 99, "lengths": {"0": 1.0}},
        {"event": "updates", "kind": "train", "round": [1], "lengths": {"0": 1.0}},
        {"event": "updates", "kind": "collect", "round": 2, "lengths": {"0": 1.0}},
        {"event": "updates", "kind": "train", "round": 2, "lengths": None},
    ]
    (folder / "deployment.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + "{")
    lines = (folder / "history.jsonl").read_text().splitlines()
    odd = {"contributors": "all", "claimed": 3}
    lines[0] = json.dumps(json.loads(lines[0]) | odd)
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")
    (record,) = read_runs([folder])
    assert record.updates == {1: {1: 0.5}}
    assert [found.asked for found in contributions(record)] == [3, 3, 3]
    assert record.claimed
    build_report([folder], tmp_path / "page.html")
