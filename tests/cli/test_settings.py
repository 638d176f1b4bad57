"""Finding settings from the command line: list, config, and a sweep that tunes."""

import json

SMALL = ["model=mlp", "hidden=[16]", "dim=8", "rounds=1", "epochs=1", "num_clients=4", "clients_per_round=2"]


def test_the_command_prints_the_grid_and_the_command_that_trains(cli):
    settings = [word for setting in ("method=fedla", *SMALL) for word in ("--set", setting)]
    printed = cli("sweep", "--tune", "--seeds", "1", "--jobs", "1", "--out", "tuned", *settings).done().out
    assert "phi = identity, exp, sqrt\n3 trials, 3 runs on validation data" in printed
    assert "train fedla with it: fedblade run --set method=fedla" in printed


def test_a_word_finds_a_setting(cli):
    rows = json.loads(cli("list", "settings", "learning_rate", "--json").done().out)
    assert [row["name"] for row in rows] == ["optimizer.lr"]
    assert rows[0].keys() >= {"name", "section", "type", "default", "meaning", "aliases", "part"}
    text = cli("list", "settings", "mu").done().out
    assert "knobs of method fedprox\n  method.mu = 0.01" in text
    assert "has the word 'zzz'" in cli("list", "settings", "zzz").mistake()


def test_the_printed_configuration_runs(cli, tmp_path):
    settings = [word for setting in ("method=fedla", *SMALL) for word in ("--set", setting)]
    (tmp_path / "my.toml").write_text(cli("config", *settings).done().out)
    cli("run", "my.toml", "--out", "mine").done()
    assert 'name = "fedla"' in (tmp_path / "mine" / "config.toml").read_text()


def test_a_function_that_makes_no_part_is_the_users_mistake(cli, tmp_path):
    (tmp_path / "mine.py").write_text("def three():\n    return 3\n")
    assert "cannot be called with no arguments" in cli("run", "--set", "method=os:system").mistake()
    assert "expected a fedblade.api.Metric" in cli("run", "--set", "metrics=accuracy,mine.py:three").mistake()
    assert "expected a fedblade.api.Partitioner" in cli("run", "--set", "partition=mine.py:three").mistake()
