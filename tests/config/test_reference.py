"""The list of all settings: complete, explained, and with aliases that stand for one key."""

import pytest

from fedblade.config.aliases import ALIASES, INSTEAD, key_of
from fedblade.config.overrides import apply_overrides
from fedblade.config.reference import all_settings, fixed_settings, knob_settings, type_text
from fedblade.config.run_config import complete_config
from fedblade.core.errors import Misconfigured
from fedblade.core.nested import dotted
from fedblade.presets.catalogue import read_config

SETTINGS = all_settings()


def test_every_key_of_a_complete_configuration_is_listed_with_its_default():
    tables = {"dataset": {"name": "digits"}, "partition": {"name": "dirichlet"}, "model": {"name": "small_cnn"}}
    resolved = dotted(complete_config({**tables, "method": {"name": "fedprox+feddecorr"}}).table())
    parts = {"", "dirichlet", "small_cnn", "fedprox", "+feddecorr"}
    listed = {setting.name: setting for setting in SETTINGS if setting.part in parts}
    assert set(resolved) == set(listed)
    unlike = {key for key, value in resolved.items() if listed[key].default not in (None, value)}
    assert unlike == {"model.init"}  # "auto" becomes "seed" or "given" when the model is known


def test_every_setting_has_a_type_and_a_meaning():
    poor = [s.name for s in SETTINGS if s.type == "value" or not s.meaning or s.meaning.startswith("A knob of")]
    assert poor == []


def test_types_are_in_words():
    types = {setting.name: setting.type for setting in fixed_settings()}
    assert types["federation.dropout"] == "number at least 0 and below 1"
    assert types["local.steps"] == 'whole number above 0 or "none"'
    assert types["evaluation.on"] == '"test" or "validation"'
    assert type_text(list[int] | list[list[int]]) == "list of whole number or list of list of whole number"


def test_aliases_are_unique_and_no_names_of_settings():
    names = [name for names in ALIASES.values() for name in names] + list(INSTEAD)
    assert len(set(names)) == len(names)
    assert set(names).isdisjoint({setting.key for setting in SETTINGS if not setting.part})
    assert set(ALIASES) <= {s.name for s in SETTINGS} | {"method", "dataset", "model"}
    assert key_of("optimizer.wd") == "optimizer.weight_decay"
    assert key_of("local.wd") is None


def test_a_run_has_the_key_of_an_alias():
    given = {
        "learning_rate": 0.5,
        "n_clients": 4,
        "num_rounds": 3,
        "local_epochs": 2,
        "algorithm": "fedprox",
        "l2": 0.1,
    }
    meant = {"lr": 0.5, "num_clients": 4, "rounds": 3, "epochs": 2, "method": "fedprox", "weight_decay": 0.1}
    assert apply_overrides(read_config("quickstart"), given) == apply_overrides(read_config("quickstart"), meant)


def test_an_alias_gives_way_to_a_knob_of_that_name(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from fedblade.api import fedavg\ndef mine(learning_rate: float = 0.1):\n    return fedavg()\n")
    table = apply_overrides(read_config("quickstart"), {"method": f"{file}:mine", "learning_rate": 0.7})
    assert table["method"]["learning_rate"] == 0.7


def test_an_alias_of_a_knob_that_is_not_here_is_unknown():
    with pytest.raises(Misconfigured, match="dirichlet_alpha"):
        apply_overrides(read_config("quickstart"), {"partition": "iid", "dirichlet_alpha": 0.1})


def test_knobs_name_their_part():
    parts = {setting.part for setting in knob_settings() if setting.name == "method.mu"}
    assert parts == {"fedprox", "moon"}
