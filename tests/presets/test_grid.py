"""How a preset's tables become cells, on presets small enough to expand by hand."""

import pytest

from fedblade.config.settings import LEVELS, merge
from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.presets.grid import expand, inherit

BASE = {
    "seeds": [1, 2],
    "dataset": {"name": "digits", "augment": "none"},
    "partition": {"name": "dirichlet", "alpha": 0.5, "cap": False},
    "federation": {"rounds": 10},
    "method": {"name": "fedavg"},
}


def cells(lists=None, **words):
    return expand({**BASE, **words}, lists or {}, "mine")


def test_without_a_grid_there_is_one_cell():
    (cell,) = cells()
    assert cell.config == {key: value for key, value in BASE.items() if key != "seeds"}
    assert (cell.seeds, cell.axes) == ((1, 2), {})


def test_axes_multiply_and_the_last_one_runs_fastest():
    found = cells(grid={"local.epochs": [1, 2], "method": ["fedavg", "fedprox"]})
    places = [(each.config["local"]["epochs"], each.config["method"]["name"]) for each in found]
    assert places == [(1, "fedavg"), (1, "fedprox"), (2, "fedavg"), (2, "fedprox")]
    assert found[3].axes == {"local.epochs": "2", "method": "fedprox"}


def test_a_list_of_grids_is_a_union():
    found = cells(grid=[{"local.epochs": [1, 2]}, {"optimizer.lr": 0.5}])
    assert [each.axes for each in found] == [{"local.epochs": "1"}, {"local.epochs": "2"}, {"optimizer.lr": "0.5"}]


def test_named_lists_may_name_others():
    lists = {"two": ["fedavg", "fedprox"], "three": ["@two", "fedetf"]}
    assert [each.axes["method"] for each in cells(lists, grid={"method": "@three"})] == ["fedavg", "fedprox", "fedetf"]


def test_a_partition_is_a_name_and_its_level():
    same, other, even = cells(grid={"partition": ["dirichlet 0.1", "shards 3", "iid"]})
    assert same.config["partition"] == {"name": "dirichlet", "alpha": 0.1, "cap": False}
    assert other.config["partition"] == {"name": "shards", "shards_per_client": 3}
    assert even.config["partition"] == {"name": "iid"}
    for name, knob in LEVELS.items():
        (cell,) = cells(grid={"partition": [f"{name} 2"]})
        assert cell.config["partition"][knob] == 2
        assert knob in partitions.get(name).knobs()
    assert {name for name in partitions.names() if "alpha" in partitions.get(name).knobs()} <= set(LEVELS)


def test_a_variant_is_a_table_with_a_label():
    (cell,) = cells(grid={"method": [{"label": "w/o", "method": {"name": "fedblade", "gamma_pba": 0.0}}]})
    assert (cell.label, cell.axes) == ("w/o", {"method": "w/o"})
    assert cell.config["method"] == {"name": "fedblade", "gamma_pba": 0.0}


def test_cases_apply_in_order_below_the_grid():
    cases = [
        {"where": {"method": "fedprox"}, "set": {"federation": {"rounds": 20}, "local": {"epochs": 9}}},
        {"where": {"method": ["fedprox", "fedetf"], "federation.rounds": 20}, "set": {"federation": {"rounds": 30}}},
    ]
    found = cells(grid={"method": ["fedavg", "fedprox", "fedetf"], "local.epochs": [1]}, cases=cases)
    assert [each.config["federation"]["rounds"] for each in found] == [10, 30, 10]
    assert [each.config["local"]["epochs"] for each in found] == [1, 1, 1]


def test_every_cell_exists_in_every_variant_and_the_first_is_the_default():
    cases = [{"where": {"split": "b", "method": "fedprox"}, "set": {"partition": {"name": "shards"}}}]
    found = cells(
        grid={"method": ["fedavg", "fedprox"], "partition.alpha": [0.1]}, variants={"split": ["a", "b"]}, cases=cases
    )
    assert [(each.axes["method"], each.variants["split"], bool(each.unusual)) for each in found] == [
        ("fedavg", "a", False),
        ("fedavg", "b", True),
        ("fedprox", "a", False),
        ("fedprox", "b", True),
    ]
    assert [each.config["partition"]["name"] for each in found] == ["dirichlet", "dirichlet", "dirichlet", "shards"]
    for variants, message in (({"split": "a"}, "expected a list of names"), ({"local": ["a"]}, "name of a setting")):
        with pytest.raises(Misconfigured, match=message):
            cells(variants=variants)


def test_a_case_may_look_at_the_method_without_its_additions():
    cases = [{"where": {"base": "moon"}, "set": {"optimizer": {"lr": 3.0}}}]
    found = cells(grid={"method": ["moon+kd", "moon-ft", "moony"]}, cases=cases)
    assert [each.config.get("optimizer") for each in found] == [{"lr": 3.0}, {"lr": 3.0}, None]


def test_naming_another_part_drops_the_knobs_of_the_one_before():
    below = {"model": {"name": "resnet20", "shortcut": "B", "norm_stats": "batch"}}
    assert merge(below, {"model": {"name": "vgg11"}})["model"] == {"name": "vgg11", "norm_stats": "batch"}
    assert merge(below, {"model": {"name": "resnet20"}}) == below


def test_inheritance_merges_tables_appends_cases_and_replaces_words():
    definitions = {
        "a": {"summary": "A", "grid": {"x": 1}, "local": {"epochs": 1, "batch_size": 8}, "cases": [{"set": {}}]},
        "b": {"extends": "a", "grid": {"y": 2}, "local": {"epochs": 5}, "cases": [{"where": {}}]},
    }
    assert inherit("b", definitions) == {
        "grid": {"y": 2},
        "local": {"epochs": 5, "batch_size": 8},
        "cases": [{"set": {}}, {"where": {}}],
    }


@pytest.mark.parametrize(
    ("definitions", "message"),
    [
        ({"b": {"extends": "aa"}, "a": {}}, "extends 'aa', which does not exist"),
        ({"b": {"extends": "a"}, "a": {"extends": "b"}}, "extends itself (b > a > b)"),
        ({"b": {"grid": 3}}, "grid = 3 of 'b' has the wrong shape"),
        ({"b": {"cases": [1]}}, "cases = [1] of 'b' has the wrong shape"),
        ({"b": {"grdi": {}}}, "unknown key 'grdi' in 'b'. Did you mean 'grid'?"),
    ],
)
def test_mistakes_in_definitions(definitions, message):
    with pytest.raises(Misconfigured, match="'b'") as error:
        inherit("b", definitions)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"method": "@tow"}, "Did you mean 'two'?"),
        ({"colour": ["red"]}, "axis 'colour' of 'mine' is no setting"),
        ({"split": ["dirichlet 0.1"]}, "Name it partition"),
        ({"seed": [5, 6]}, "Use seeds = [1, 2]."),
        ({"partition": ["shards 1.5"]}, "has the value 'shards 1.5'; expected a partition and its level"),
    ],
)
def test_mistakes_in_grids(grid, message):
    with pytest.raises(Misconfigured) as error:
        cells({"two": []}, grid=grid)
    assert message in str(error.value)


@pytest.mark.parametrize("seeds", [[], [-1], [1.5], ["one"], [True], [1, 1]])
def test_seeds_are_whole_numbers(seeds):
    with pytest.raises(Misconfigured, match="are no seeds"):
        cells(seeds=seeds)
