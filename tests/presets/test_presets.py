"""The quickstart, configuration files, seeds and schedules."""

import pytest

from fedblade.config.schema import Optimizer
from fedblade.core.errors import Misconfigured
from fedblade.presets.catalogue import is_grid, preset_names, preset_summary
from fedblade.runs import load_config


def test_the_quickstart_has_the_numbers_of_the_contract():
    config, _ = load_config("quickstart", {})
    table = config.table()
    assert table["dataset"]["name"] == "digits"
    assert (table["model"]["name"], table["model"]["dim"]) == ("small_cnn", 128)
    assert (table["federation"]["num_clients"], table["federation"]["clients_per_round"]) == (20, 10)
    assert table["federation"]["rounds"] == 40
    assert table["partition"] | {"name": "dirichlet", "alpha": 0.1, "min_size": 5} == table["partition"]
    assert (table["local"]["epochs"], table["local"]["batch_size"]) == (3, 32)
    assert table["optimizer"] | {"name": "sgd", "lr": 0.02, "momentum": 0.9} == table["optimizer"]
    assert load_config(None, {"method": "fedblade"})[0].table()["method"]["decorr"]["balance"] == 0.1


def test_nothing_named_means_the_quickstart():
    assert load_config(None, {})[0].table() == load_config("quickstart", {})[0].table()


def test_every_preset_resolves_and_says_what_it_is():
    assert "quickstart" in preset_names()
    for name in preset_names():
        if not is_grid(name):
            load_config(name, {})
        assert len(preset_summary(name)) > 10


def test_a_file_of_the_users_is_read_by_path(toml_file, minimal):
    path = toml_file("seed = 5\n" + minimal)
    for source in (path, str(path)):
        config, seeds = load_config(source, {"rounds": 2})
        assert (config.general.seed, config.federation.rounds, seeds) == (5, 2, [5])
        assert config.partition.name == "iid"


def test_suggested_seeds_come_with_the_configuration(toml_file, minimal):
    config, seeds = load_config(toml_file("seed = 5\nseeds = [7, 8]\n" + minimal), {})
    assert seeds == [7, 8]
    assert config.general.seed == 5
    assert "seeds" not in config.table()


@pytest.mark.parametrize("seeds", ['"abc"', "3", '[1, "two"]', "[1, true]", "[-1]", "[1.5]"])
def test_seeds_that_are_no_list_of_whole_numbers_are_refused(toml_file, minimal, seeds):
    with pytest.raises(Misconfigured, match="seeds"):
        load_config(toml_file(f"seeds = {seeds}\n" + minimal), {})


def test_broken_toml_is_refused_with_file_and_line(toml_file):
    path = toml_file("seed = 1\n\nrounds = = 3\n")
    with pytest.raises(Misconfigured, match=r"mine\.toml.*line 3"):
        load_config(path, {})


def test_a_file_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "latin.toml"
    path.write_bytes('id = "é"\n'.encode("latin-1"))
    with pytest.raises(Misconfigured, match=r"latin\.toml"):
        load_config(path, {})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(Misconfigured, match=r"nowhere\.toml"):
        load_config(tmp_path / "nowhere.toml", {})


def test_an_unknown_preset_is_refused_with_the_nearest():
    with pytest.raises(Misconfigured, match=r"'quickstar'.*'quickstart'"):
        load_config("quickstar", {})


def rates(schedule, rounds):
    optimizer = Optimizer(lr=1.0, schedule=schedule)
    return [optimizer.rate(t, rounds) for t in range(rounds)]


def test_the_constant_schedule_is_constant():
    assert rates("constant", 7) == [1.0] * 7


def test_the_exponential_schedule_shrinks_by_a_hundredth_each_round():
    assert rates("exp", 5) == pytest.approx([1, 0.99, 0.9801, 0.970299, 0.96059601])


def test_the_step_schedule_drops_at_a_half_and_at_three_quarters():
    assert rates("step", 8) == pytest.approx([1.0] * 4 + [0.1] * 2 + [0.01] * 2)
    assert rates("step", 7) == pytest.approx([1.0] * 4 + [0.1] * 2 + [0.01])
    paper = rates("step", 320)
    assert (paper[159], paper[160], paper[239], paper[240]) == pytest.approx((1.0, 0.1, 0.1, 0.01))
