"""The section of the page that says who took part how often."""

import re

from fedblade.report import build_report
from fedblade.results import contributions, participation, read_runs
from fedblade.runs import execute
from support.small_federation import configure, vectors

_KEYS = ("unseen_clients_accuracy", "trained_clients_accuracy", "unseen_gap")
SIX = {"num_clients": 6, "partition.min_size": 4, "rounds": 4, "clients_per_round": 3}
TURNS = {"participation": "fixed", "cohorts": [[0, 1], [2, 3, 0]]}


def cells(page, first):
    """The cells of the table row whose first cell is this text."""
    rows = [
        [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
    ]
    return next(row for row in rows if row and row[0] == first)


def section_of(folders, tmp_path):
    page = build_report(folders, tmp_path / "page.html").read_text()
    return page[page.index('id="participation"') : page.index('id="configuration"')]


def test_the_page_says_who_took_part_once_for_all_methods(tmp_path):
    for method in ("fedavg", "fedprox"):
        execute(configure(method, **SIX, **TURNS), out=tmp_path / method, dataset=vectors())
    section = section_of([tmp_path / "fedavg", tmp_path / "fedprox"], tmp_path)
    assert "Who took part?" in section
    assert cells(section, "fedavg, seed 3 and 1 more run")[1:] == ["4 of 6", "0", "2", "4", "10 of 10"]
    assert cells(section, "0")[1:] == ["4", "4"]
    assert cells(section, "3")[1:] == ["2", "2"]


def test_answers_that_are_missing_are_shown_without_the_words_on_nodes(tmp_path):
    execute(configure("fedavg", dropout=0.5, **SIX), out=tmp_path / "run", dataset=vectors())
    (record,) = read_runs([tmp_path / "run"])
    added = sum(len(round_.contributors) for round_ in record.history)
    assert added < 12
    assert sum(client.added for client in participation(record)) == added
    assert contributions(record) == []
    section = section_of([tmp_path / "run"], tmp_path)
    assert cells(section, "fedavg, seed 3")[-1] == f"{added} of 12"
    assert "Who contributed?" not in section
    assert "missing in more than a tenth" not in section


def test_clients_never_seen_are_compared(tmp_path):
    keys = {"unseen": 0.3, "test_split": "holdout", "evaluation.protocol": "ft", "partition": "iid", "rounds": 4}
    config = configure("fedavg-ft", num_clients=6, clients_per_round=3, **keys)
    result = execute(config, out=tmp_path / "run", dataset=vectors(400))
    section, summary = section_of([tmp_path / "run"], tmp_path), result.summary
    for name, prefix in (("fedavg-ft, seed 3", ""), ("fedavg-ft, seed 3, tuned", "tuned_")):
        shown = cells(section[section.index("Unseen clients") :], name)
        unseen, trained, gap = (summary[f"{prefix}{key}"] for key in _KEYS)
        assert shown[1:] == [f"{unseen:.2f}", f"{trained:.2f}", f"{gap:+.2f}".replace("-", "−")]
