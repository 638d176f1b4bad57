"""Every figure of the five papers is drawn from runs that have its numbers."""

import tomllib
from importlib.resources import files

import pytest

from fedblade.figures import paper_ids, write_figures
from fedblade.figures._cells import choose_cells
from fedblade.figures._specs import Part, general_figures, paper_figure
from fedblade.presets.names import names_in_papers
from fedblade.results import group_runs, read_runs

PAPERS = files("fedblade") / "presets" / "files" / "papers"
VALUES = (1, 2, 5)


def make_runs(make_run, parts: list[Part]) -> None:
    """Two methods, and runs of a third that differ in what the figure sweeps."""
    for method in ("fedavg", "fedetf"):
        make_run(method)
    for key in (part.x for part in parts if part.x):
        section, _, knob = key.partition(".")
        for value in VALUES:
            make_run("fedblade", **{section: {knob: value}})


@pytest.mark.parametrize("figure", paper_ids())
def test_a_figure_of_a_paper_is_drawn(make_run, tmp_path, figure):
    parts = paper_figure(figure)
    make_runs(make_run, parts)
    written = write_figures([tmp_path / "runs"], tmp_path / "figures", formats=["svg"], columns="1", paper=figure)
    assert [path.name for path in written] == [f"{part.name}-1col.svg" for part in parts]
    assert all("</svg>" in path.read_text() for path in written)


CELL = {
    "dataset": {"name": "tiny_imagenet"},
    "model": {"name": "mobilenet_v2"},
    "local": {"epochs": 10},
    "federation": {"num_clients": 10, "clients_per_round": 10, "rounds": 2},
}


def chosen(root, figure: str) -> list[tuple[str, str]]:
    groups = choose_cells(figure, group_runs(read_runs([root / "runs"])))
    return [(group.method, group.runs[0].part("dataset")) for group in groups]


def test_runs_of_other_presets_in_the_same_folder_stay_out(make_run, tmp_path):
    for method in ("fedavg", "fedavg+feddecorr", "moon"):
        for dataset in ("tiny_imagenet", "cifar10"):
            make_run(method, **(CELL | {"dataset": {"name": dataset}}))
    make_run("fedavg", **(CELL | {"partition": {"alpha": 0.3}}))
    make_run("fedavg", **(CELL | {"local": {"epochs": 20}}))
    assert chosen(tmp_path, "fd-f8") == [("fedavg", "tiny_imagenet"), ("fedavg+feddecorr", "tiny_imagenet")]


def test_a_figure_has_the_default_reading_of_its_paper_and_another_where_there_is_no_such_run(make_run, tmp_path):
    blade = CELL | {
        "local": {"epochs": 5},
        "federation": {"num_clients": 100, "clients_per_round": 20, "rounds": 2},
    }

    def drawn():
        groups = choose_cells("fb-f3", group_runs(read_runs([tmp_path / "runs"])))
        return [group.runs[0].part("partition") for group in groups]

    make_run("fedavg", **blade, partition={"name": "dirichlet", "alpha": 0.05})
    assert drawn() == ["dirichlet"]
    make_run("fedavg", **blade, partition={"name": "dirichlet_clients", "alpha": 0.05})
    assert drawn() == ["dirichlet_clients"]


def test_runs_that_are_no_cells_of_the_preset_are_all_drawn(make_run, tmp_path):
    for method in ("fedavg", "mine"):
        make_run(method)
    assert chosen(tmp_path, "fd-f8") == [("fedavg", "digits"), ("mine", "digits")]


def test_every_figure_among_the_presets_can_be_drawn():
    presets = [tomllib.loads(entry.read_text()) for entry in PAPERS.iterdir() if entry.suffix == ".toml"]
    presets = [table for table in presets if "presets" in table]
    known = {name for table in presets for name in (*table["presets"], *table.get("aliases", {}))}
    assert {name for name in known if name.partition("-f")[2].isdigit()} == set(paper_ids())


def test_figures_name_metrics_that_exist():
    import fedblade.runs  # noqa: F401
    from fedblade.core.registry import metrics

    parts = [*general_figures(), *(part for figure in paper_ids() for part in paper_figure(figure))]
    named = {number.metric for part in parts for number in part.required if number.metric}
    assert named <= set(metrics.names())


def test_names_in_the_table_are_those_of_methods():
    parts = [part for figure in paper_ids() for part in paper_figure(figure)]
    assert {method for part in parts for method in part.names} <= set(names_in_papers()["method"])
