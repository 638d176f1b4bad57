"""Choosing cells by the columns of the published results."""

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.presets.catalogue import is_grid, load_grid, read_config
from fedblade.presets.published import lines_of, select
from fedblade.runs import load_config


def chosen(name, *where):
    return [line.facts for line in select(lines_of(load_grid(name)), where)]


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ((), 81),
        (("dataset=CIFAR-10", "level=0.05"), 9),
        (("dataset=cifar10", "level=.05"), 9),
        (("level=0.05", "level=0.1", "method=FedBlade"), 6),
        (("method=fedprox", "participants=20"), 9),
    ],
)
def test_values_narrow_and_repeated_columns_widen(where, count):
    assert len(chosen("fb-t1", *where)) == count


def test_a_choice_is_exactly_what_was_asked_for():
    (line,) = chosen("fb-t1", "dataset=Tiny-ImageNet", "level=0.5", "method=FedFM")
    assert (line["dataset"], line["level"], line["method"]) == ("Tiny-ImageNet", "0.5", "FedFM")


def test_axes_without_a_column_are_chosen_by_their_key():
    assert {line["local.epochs"] for line in chosen("fb-t9", "epochs=10")} == {"10"}
    assert len(chosen("fb-f6", "lambda_decorr=0.05", "dataset=CIFAR-100")) == 3


def test_metrics_and_domains_are_lines_of_their_own():
    assert len(chosen("fg-t2", "metric=PA")) == 198
    assert len(chosen("fd-t3", "level=Webcam")) == 10


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("datset=CIFAR-10", "unknown column 'datset' in --where. Did you mean 'dataset'?"),
        ("dataset=CIFAR-1O", "no cell has dataset = 'CIFAR-1O'. Did you mean 'CIFAR-10'?"),
        ("level=0.07", "no cell has level = '0.07'."),
        ("level", "--where 'level' is not a choice; expected column=value"),
    ],
)
def test_mistakes_are_answered_with_the_nearest_name(where, message):
    with pytest.raises(Misconfigured) as error:
        chosen("fb-t1", where)
    assert message in str(error.value)


def test_an_unknown_column_is_answered_with_each_column_once_and_variants_first():
    for name, variant in {"fb-t1": "split", "fb-t9": "split", "fr-f7": "block"}.items():
        with pytest.raises(Misconfigured) as error:
            chosen(name, "xyzzy=1")
        listed = str(error.value).partition("Choose from: ")[2].rstrip(".").split(", ")
        assert listed[0] == variant
        assert len(set(listed)) == len(listed) >= 9, name


def test_values_that_exist_apart_but_not_together():
    with pytest.raises(Misconfigured, match="no cell has dataset=CIFAR-10 and level=80 together"):
        chosen("fd-t2", "dataset=CIFAR-10", "level=80")


def test_a_single_run_needs_one_cell():
    with pytest.raises(Misconfigured) as error:
        read_config("fb-t1", ["dataset=CIFAR-10", "method=FedETF"])
    assert "3 of its cells fit. Choose one by level, for example --where level=0.05" in str(error.value)
    raw = read_config("fb-t1", ["dataset=CIFAR-10", "method=FedETF", "level=0.1"])
    assert (raw["partition"]["alpha"], raw["method"]["name"], raw["seed"]) == (0.1, "fedetf", 1024)


def test_a_grid_is_named_as_it_was_given(tiny):
    source = tiny("tn-t1")
    with pytest.raises(Misconfigured) as error:
        read_config(source)
    assert str(error.value).startswith(f"'{source}' is a grid")
    assert f"`fedblade reproduce {source} --dry-run` lists all" in str(error.value)


def test_a_preset_with_one_cell_is_a_run(tiny):
    config, seeds = load_config(tiny("tn-one"), {})
    assert (config.method_knobs["mu"], config.partition.knobs["alpha"], seeds) == (0.1, 1.0, [1, 2])


def test_a_single_run_has_nothing_to_choose():
    with pytest.raises(Misconfigured, match="'quickstart' is a single run"):
        read_config("quickstart", ["level=1"])


def test_a_file_of_grids_is_known_as_one(tiny, tmp_path):
    plain = tmp_path / "plain.toml"
    plain.write_text('[method]\nname = "fedavg"\n')
    swept = tmp_path / "swept.toml"
    swept.write_text('grid = {"local.epochs" = [1, 2]}\n[method]\nname = "fedavg"\n')
    assert (is_grid(tiny("tn-t1")), is_grid(plain), is_grid(swept), is_grid("quickstart")) == (True, False, True, False)
    assert len(load_grid(swept).cells) == 2
    with pytest.raises(Misconfigured, match="is a single run; expected a grid"):
        load_grid(plain)


@pytest.mark.parametrize(
    ("source", "message"),
    [("fb-t6", "unknown preset 'fb-t6'. Did you mean"), ("nowhere.toml", "no such config file 'nowhere.toml'")],
)
def test_presets_that_are_not_there(source, message):
    with pytest.raises(Misconfigured) as error:
        load_grid(source)
    assert message in str(error.value)


def test_a_file_with_several_presets_needs_an_id(tiny):
    with pytest.raises(Misconfigured, match=r"has no preset 'tn-t3'\. Did you mean 'tn-t"):
        load_grid(tiny("tn-t3"))
