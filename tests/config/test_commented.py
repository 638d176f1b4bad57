"""The file that `fedblade config` prints gives the same run as the preset."""

import tomllib

import pytest

from fedblade.config.commented import commented_toml
from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import complete_config
from fedblade.core.nested import dotted
from fedblade.presets.catalogue import is_grid, load_grid, preset_names, read_config
from fedblade.runs import load_config


def first_cells():
    """A configuration of every preset: the first cell of a grid."""
    for name in preset_names():
        tables = {"id": name, **load_grid(name).cells[0].config} if is_grid(name) else read_config(name)
        yield name, complete_config(apply_overrides({k: v for k, v in tables.items() if k != "seeds"}, {}))


def test_the_file_gives_the_configuration_of_every_preset(tmp_path):
    file = tmp_path / "my.toml"
    wrong = []
    for name, config in first_cells():
        file.write_text(commented_toml(config))
        if load_config(file, {})[0].table() != config.table():
            wrong.append(name)
    assert wrong == []


@pytest.mark.parametrize("method", ["fedblade+feddecorr", "fedetf-ft"])
def test_every_key_has_a_comment(method):
    config, seeds = load_config(None, {"method": method})
    text = commented_toml(config, seeds)
    before, commented = "", set()
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            assert before.startswith("#"), line
            commented.add(line.partition(" =")[0])
        before = line
    assert commented >= {key.split(".")[-1] for key in dotted(config.table()) if key.count(".") < 2}
    assert tomllib.loads(text)["seeds"] == [1, 2, 3]


def test_knobs_of_an_own_method_are_in_the_file(tmp_path):
    module, file = tmp_path / "mine.py", tmp_path / "my.toml"
    module.write_text("from fedblade.api import fedavg\ndef mine(pull: float = 0.1):\n    return fedavg()\n")
    config, _ = load_config(None, {"method": f"{module}:mine", "pull": 0.3})
    file.write_text(commented_toml(config))
    assert load_config(file, {})[0].method_knobs["pull"] == 0.3
