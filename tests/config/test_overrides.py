"""Short keys, full paths, ambiguous keys, and what choosing a part does to its section."""

import pytest
import torch

from fedblade.config.overrides import parse_assignment
from fedblade.core.errors import Misconfigured
from fedblade.runs import load_config
from fedblade.studies import plan_reproduction, plan_sweep
from fedblade.studies._sweep import Axis


def table(source=None, **overrides):
    return load_config(source, overrides)[0].table()


def at(config, path):
    """The value at a dotted path."""
    for key in path.split("."):
        config = config[key]
    return config


@pytest.mark.parametrize(
    ("key", "path", "value"),
    [
        ("rounds", "federation.rounds", 12),
        ("num_clients", "federation.num_clients", 100),
        ("clients_per_round", "federation.clients_per_round", 3),
        ("alpha", "partition.alpha", 0.05),
        ("min_size", "partition.min_size", 1),
        ("lr", "optimizer.lr", 0.5),
        ("epochs", "local.epochs", 7),
        ("batch_size", "local.batch_size", 8),
        ("dim", "model.dim", 32),
        ("augment", "dataset.augment", "crop_flip"),
        ("keep", "checkpoint.keep", 5),
        ("protocol", "evaluation.protocol", "final"),
        ("seed", "seed", 9),
        ("device", "device", "cpu"),
        ("gamma_pba", "method.gamma_pba", 0.0),
        ("tau", "method.pba.tau", 0.5),
        ("balance", "method.decorr.balance", 0.3),
        ("learnable", "method.scale.learnable", False),
        ("transform", "method.proto.transform", "train"),
    ],
)
def test_a_short_key_is_the_same_as_its_full_path(key, path, value):
    short, full, default = table(**{key: value}), table(**{path: value}), table()
    assert at(short, path) == value
    assert short == full
    assert at(default, path) != value


@pytest.mark.parametrize("key", ["pba.tau", "decorr.balance", "scale.min"])
def test_the_end_of_a_path_will_do(key):
    assert at(table(**{key: 0.25}), f"method.{key}") == 0.25


def test_a_short_key_changes_nothing_else():
    changed, default = table(alpha=0.3), table()
    changed["partition"]["alpha"] = default["partition"]["alpha"]
    assert changed == default


@pytest.mark.parametrize(
    ("key", "meanings"),
    [("every", ["evaluation.every", "checkpoint.every"]), ("scale", ["method.scale", "method.decorr.scale"])],
)
def test_an_ambiguous_key_is_refused_with_all_its_meanings(key, meanings):
    with pytest.raises(Misconfigured) as caught:
        table(**{key: 2})
    assert all(meaning in str(caught.value) for meaning in meanings)


def test_a_full_path_settles_an_ambiguity():
    config = table(**{"checkpoint.every": 3, "method.scale": {"init": 2.0}})
    assert (config["checkpoint"]["every"], config["evaluation"]["every"]) == (3, 1)
    assert config["method"]["scale"]["init"] == 2.0


def test_fixed_sections_win_over_knobs_of_the_method(tmp_path):
    """`epochs` must not start to mean something else when a method has a knob of that name."""
    code = "from fedblade.methods.fedavg import fedavg\ndef own(epochs: int = 1):\n    return fedavg()\n"
    (tmp_path / "own.py").write_text(code)
    config = table(method=f"{tmp_path / 'own.py'}:own", epochs=7)
    assert (config["local"]["epochs"], config["method"]["epochs"]) == (7, 1)
    config = table(method=f"{tmp_path / 'own.py'}:own", **{"method.epochs": 7})
    assert (config["local"]["epochs"], config["method"]["epochs"]) == (3, 7)


@pytest.mark.parametrize(
    ("key", "near"), [("roundz", "rounds"), ("federation.roundz", "federation.rounds"), ("gama_pba", "gamma_pba")]
)
def test_an_unknown_key_is_refused_with_the_nearest(key, near):
    with pytest.raises(Misconfigured, match=f"'{near}'"):
        table(**{key: 1})


def test_a_knob_exists_only_with_its_method():
    with pytest.raises(Misconfigured, match="gamma_pba"):
        table(method="fedavg", gamma_pba=1.0)


@pytest.mark.parametrize(
    ("kind", "name", "knobs"),
    [
        ("model", "mlp", {"hidden": [128], "dim": 64, "norm": "none", "norm_stats": "running"}),
        ("partition", "pathological", {}),
        ("dataset", "arrays", {"path": "", "augment": "none", "test_split": "global"}),
        ("method", "fedprox", {"mu": 0.01}),
    ],
)
def test_choosing_a_part_replaces_its_knobs_by_defaults(kind, name, knobs):
    section = table(**{kind: name})[kind]
    assert section["name"] == name
    assert not {"alpha", "gamma_pba"} & section.keys()
    assert {key: section[key] for key in knobs} == knobs


def test_settings_of_a_section_survive_a_change_of_its_part():
    config = table(**{"model": "mlp", "model.norm_stats": "batch"})
    assert config["model"]["norm_stats"] == "batch"


def test_knobs_of_the_chosen_part_apply_whatever_the_order():
    assert table(mu=0.5, method="fedprox")["method"] == {"name": "fedprox", "mu": 0.5}
    assert table(hidden=[4], model="mlp")["model"]["hidden"] == [4]


def test_the_presets_overrides_for_a_method_are_used_and_only_for_it():
    assert table()["method"]["decorr"]["balance"] == 0.1
    assert table(method="fedblade")["method"]["decorr"]["balance"] == 0.1
    assert table(method="feddecorr")["method"]["decorr"]["balance"] == "none"


def test_the_files_own_method_section_wins_over_its_overrides_table(toml_file, minimal):
    text = minimal.replace('name = "fedavg"', 'name = "fedprox"\nmu = 0.7') + "[methods.fedprox]\nmu = 0.3\n"
    assert table(toml_file(text))["method"]["mu"] == 0.7
    assert table(toml_file(text), method="fedprox")["method"]["mu"] == 0.3
    assert table(toml_file(text), method="fedprox", mu=0.1)["method"]["mu"] == 0.1


def test_overrides_of_a_nested_table_keep_the_other_entries():
    """`decorr.balance` of the preset stays when another entry of `decorr` changes, and the other way round."""
    decorr = table(**{"method.decorr.eps": 1e-3})["method"]["decorr"]
    assert (decorr["eps"], decorr["balance"]) == (1e-3, 0.1)
    decorr = table(**{"method.decorr": {"eps": 1e-3}})["method"]["decorr"]
    assert (decorr["eps"], decorr["balance"]) == (1e-3, 0.1)


def test_a_regularisers_knobs_live_in_a_table_of_its_name():
    method = table(method="fedprox+feddecorr", mu=0.2, lambda_decorr=0.4)["method"]
    assert method["mu"] == 0.2
    assert method["feddecorr"]["lambda_decorr"] == 0.4


def test_epochs_are_refused_where_steps_take_their_place(toml_file, minimal, tmp_path):
    """However both came about; a file may hold both, as the stored configuration of every run does."""
    stepped = toml_file(minimal + "[local]\nsteps = 30\nepochs = 3\n")
    released = ["block=released", "dataset=CIFAR-100", "partition=dirichlet", "level=0.1", "method=FedAvg"]
    for ask in (
        lambda: table(stepped, epochs=7),
        lambda: table(**{"local.epochs": 7, "local.steps": 30}),
        lambda: plan_sweep(stepped, [Axis("local.epochs", (1, 2))], tmp_path),
        lambda: plan_reproduction("fr-t3", where=released, overrides={"local.epochs": 7}).cells,
    ):
        with pytest.raises(
            Misconfigured, match=r"local\.epochs has no effect while local\.steps=30\. Set local\.steps"
        ):
            ask()
    assert at(table(stepped), "local.steps") == 30
    assert at(table(stepped, **{"local.epochs": 7, "local.steps": "none"}), "local.epochs") == 7
    assert at(table(stepped, **{"local.steps": 5}), "local.steps") == 5


def test_overriding_does_not_change_the_preset():
    before = table()
    table(**{"method.decorr.eps": 0.5, "rounds": 3})
    assert table() == before


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("rounds=12", ("rounds", 12)),
        ("lr=1e-3", ("lr", 1e-3)),
        ("persist=true", ("persist", True)),
        ("hidden=[4, 8]", ("hidden", [4, 8])),
        ("decorr={balance = 0.2}", ("decorr", {"balance": 0.2})),
        ("method=fedavg", ("method", "fedavg")),
        ("method=fedprox+feddecorr", ("method", "fedprox+feddecorr")),
        ("dataset.path=/tmp/a=b.npz", ("dataset.path", "/tmp/a=b.npz")),
        (" rounds = 12 ", ("rounds", 12)),
        ('id="12"', ("id", "12")),
        ("lr=.02", ("lr", 0.02)),
        ("lr=-2.", ("lr", -2.0)),
        ("lr=.5e-3", ("lr", 0.0005)),
        ("lr=5e-3", ("lr", 0.005)),
        ("rounds=1_000", ("rounds", 1000)),
        ("id=1.2.3", ("id", "1.2.3")),
    ],
)
def test_assignments_are_toml_or_plain_words(text, pair):
    assert parse_assignment(text) == pair


@pytest.mark.parametrize("text", ["rounds", "=12", " =12", ""])
def test_what_is_no_assignment_is_refused(text):
    with pytest.raises(Misconfigured, match="key=value"):
        parse_assignment(text)


@pytest.mark.parametrize(("key", "near"), [("methd", "method"), ("dtaset", "dataset"), ("mdel", "model")])
def test_a_misspelt_section_is_answered_with_its_name(key, near):
    with pytest.raises(Misconfigured) as caught:
        table(**{key: "fedavg"})
    assert str(caught.value) == f"unknown key '{key}'. Did you mean '{near}'?"


def test_a_key_like_no_other_is_answered_with_the_knobs_and_where_to_look():
    with pytest.raises(Misconfigured) as caught:
        table(method="fedprox", xyzzy=3)
    assert str(caught.value) == (
        "unknown key 'xyzzy': no section has it, and method 'fedprox' has the knob mu. `fedblade list settings WORD` "
        "finds a setting."
    )


@pytest.mark.parametrize(
    ("given", "names"),
    [("nc1", ["nc1"]), ("nc1,nc2", ["nc1", "nc2"]), (["nc1"], ["nc1"]), ("nc1, nc2", ["nc1", "nc2"])],
)
def test_names_may_be_given_without_brackets(given, names):
    assert at(table(metrics=given), "evaluation.metrics") == names
    assert at(table(**{"evaluation.metrics": given}), "evaluation.metrics") == names


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"local.lr": 1}, "'lr' belongs to [optimizer]. Write optimizer.lr."),
        ({"mu": 1, "method": "fedavg"}, "'mu' is a knob of methods fedprox and moon."),
        ({"partition": "iid", "alpha": 2}, "a knob of partitions dirichlet, dirichlet_clients and dirichlet_groups."),
        ({"partition": "iid", "dirichlet_alpha": 2}, "another name of partition.alpha"),
        ({"fraction_fit": 0.1}, "give clients_per_round"),
        ({"epoch": 1}, "Did you mean 'epochs' (local.epochs)?"),
        ({"federation.roundz": 1}, "Choose from: federation.clients_per_round, federation.dropout"),
        ({"method": "fedprx"}, "Did you mean 'fedprox'? `fedblade list methods` explains all"),
        ({"stop": 1}, "'stop': it is a section. Its keys are stop.max_seconds and stop.patience."),
        ({"optimizer": {"lr": 0.1}}, "'optimizer': it is a section. Its keys are optimizer.name, optimizer.lr,"),
        ({"lerning_rate": 1}, "Did you mean 'learning_rate' (optimizer.lr)?"),
        ({"method": "fedavg", "gama_pba": 1}, "no knobs. 'gamma_pba' is a knob of method fedblade. `fedblade list"),
        ({"gpu": True}, "unknown key 'gpu': give device=cuda"),
        ({"seeds": [1, 2]}, "unknown key 'seeds': a run has one seed; `fedblade compare`"),
        ({"method": "+feddecorr"}, "has an empty or a repeated part"),
        ({"model": "mlp", "hidden": 64}, "model.hidden = 64 is not allowed; expected a list, such as [64, 32]."),
    ],
)
def test_an_unknown_key_is_answered_with_what_was_meant(given, meant):
    with pytest.raises(Misconfigured) as caught:
        table(**given)
    assert meant in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [("lr", torch.tensor(0.1)), ("seed", object()), ("metrics", {"accuracy"})])
def test_an_object_that_no_file_can_hold_is_refused(key, value):
    with pytest.raises(Misconfigured, match=f"{key} is an object of type {type(value).__name__}; expected what a"):
        table(**{key: value})


def test_a_whole_number_may_be_written_with_an_exponent():
    assert at(table(rounds=1e3), "federation.rounds") == 1000
    assert type(at(table(rounds=1e3), "federation.rounds")) is int
    with pytest.raises(Misconfigured, match="expected a valid integer"):
        table(rounds=2.5)
