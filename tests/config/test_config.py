"""Configurations: every documented key is taken, everything else is refused in one line that helps."""

import tomllib

import numpy as np
import pytest

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import complete_config
from fedblade.core.errors import Misconfigured
from fedblade.runs import load_config, prepare

SPEC = """
id = "fb-t1"
seed = 1024
engine = "auto"
device = "auto"
dtype = "float32"
autocast = "none"

[dataset]
name = "digits"
augment = "fedblade"
test_split = "global"
[partition]
name = "dirichlet"
alpha = 0.05
cap = true
min_size = 10
[federation]
num_clients = 100
clients_per_round = 20
rounds = 200
weighting = "samples"
[model]
name = "small_cnn"
norm_stats = "running"
[local]
epochs = 5
batch_size = 64
last_batch = "keep"
[optimizer]
name = "sgd"
lr = 0.01
momentum = 0.9
weight_decay = 1.0e-5
schedule = "constant"
persist = false
clip = "none"
[method]
name = "fedblade"
lambda_decorr = 0.005
gamma_pba = 1.0
gamma_bal = 1.0
count_floor = 1
proj_dim = "auto"
decorr = {kind = "logdet", eps = 1.0e-4, var_eps = 1.0e-8, ddof = 0, form = "auto", precision = "f64", balance = "none"}
pba = {tau = 0.1, use_pa = true, use_fa = true, distribution_factor = true, pa_reduction = "sum"}
scale = {init = 1.0, learnable = true, min = 1.0e-3}
proto = {weight = "count", transform = "eval", carry_over = true}
[evaluation]
protocol = "last10"
every = 1
metrics = ["accuracy", "erank_feature", "erank_proj", "nc1", "nc2"]
[checkpoint]
every = 1
keep = 2
"""
"""Methods.md 6.0, with the data set and the model that the quickstart has."""


def message_of(source, **overrides) -> str:
    """The one line with which a configuration is refused."""
    with pytest.raises(Misconfigured) as caught:
        load_config(source, overrides)
    text = str(caught.value)
    assert "\n" not in text
    return text


def contains(given, expected):
    """Whether every key of `expected` is in `given` with the same value."""
    for key, value in expected.items():
        if isinstance(value, dict):
            contains(given[key], value)
        else:
            assert given[key] == value
            assert type(given[key]) is type(value)


def test_every_documented_key_is_kept_as_written(toml_file):
    config, seeds = load_config(toml_file(SPEC), {})
    contains(config.table(), tomllib.loads(SPEC))
    assert seeds == [1024]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("weighting", ["samples", "uniform", "batches"]),
        ("last_batch", ["keep", "drop", "wrap"]),
        ("test_split", ["global", "matched", "proportional", "holdout"]),
        ("norm_stats", ["running", "batch"]),
        ("schedule", ["constant", "exp", "step"]),
        ("dtype", ["float32", "float64"]),
        ("autocast", ["none", "bf16"]),
        ("protocol", ["last10", "last5", "final", "domain"]),
        ("clip", ["none", 20.0]),
        ("proj_dim", ["auto", 12]),
    ],
)
def test_documented_alternatives_are_accepted(key, values):
    for value in values:
        table = load_config(None, {key: value})[0].table()
        assert value in [each.get(key) for each in (table, *(t for t in table.values() if isinstance(t, dict)))]


@pytest.mark.parametrize(
    ("old", "new", "named", "near"),
    [
        ('id = "fb-t1"', "sede = 3", "sede", "seed"),
        ("rounds = 200", "round = 200", "federation.round", "rounds"),
        ("epochs = 5", "epoch = 5", "local.epoch", "epochs"),
        ("momentum = 0.9", "momentun = 0.9", "optimizer.momentun", "momentum"),
        ("keep = 2", "kep = 2", "checkpoint.kep", "keep"),
        ("protocol = ", "protocoll = ", "evaluation.protocoll", "protocol"),
        ('augment = "fedblade"', 'augmen = "none"', "dataset.augmen", "augment"),
        ("alpha = 0.05", "alfa = 0.05", "partition.alfa", "alpha"),
        ("norm_stats", "norm_stat", "model.norm_stat", "norm_stats"),
        ("gamma_pba", "gama_pba", "method.gama_pba", "gamma_pba"),
        ("tau = 0.1", "taau = 0.1", "method.pba.taau", "tau"),
        ("balance = ", "balanse = ", "method.decorr.balanse", "balance"),
        ("learnable", "learnabel", "method.scale.learnabel", "learnable"),
        ("carry_over", "carryover", "method.proto.carryover", "carry_over"),
        ("[checkpoint]", "[checkpoints]", "checkpoints", "checkpoint"),
    ],
)
def test_unknown_keys_are_refused_at_every_level_with_the_nearest_name(toml_file, old, new, named, near):
    assert old in SPEC
    text = message_of(toml_file(SPEC.replace(old, new)))
    assert f"'{named}'" in text
    assert f"'{near}'" in text


def test_a_knob_of_another_method_is_refused(toml_file):
    text = message_of(toml_file(SPEC.replace('name = "fedblade"', 'name = "fedprox"')))
    assert "method.lambda_decorr" in text


@pytest.mark.parametrize(
    ("key", "value", "where", "shown", "expected"),
    [
        ("rounds", "12", "federation.rounds", '"12"', "integer"),
        ("rounds", True, "federation.rounds", "true", "integer"),
        ("rounds", 3.5, "federation.rounds", "3.5", "integer"),
        ("rounds", 0, "federation.rounds", "0", "greater than 0"),
        ("rounds", -4, "federation.rounds", "-4", "greater than 0"),
        ("seed", -1, "seed", "-1", "greater than or equal to 0"),
        ("seed", "one", "seed", '"one"', "integer"),
        ("lr", "0.1", "optimizer.lr", '"0.1"', "number"),
        ("lr", True, "optimizer.lr", "true", "number"),
        ("lr", 0.0, "optimizer.lr", "0.0", "greater than 0"),
        ("momentum", 1.0, "optimizer.momentum", "1.0", "less than 1"),
        ("persist", 1, "optimizer.persist", "1", "true or false"),
        ("clip", "soft", "optimizer.clip", '"soft"', "'none'"),
        ("schedule", "cosine", "optimizer.schedule", '"cosine"', "'step'"),
        ("metrics", 3, "evaluation.metrics", "3", "a list"),
        ("dtype", "float16", "dtype", '"float16"', "'float64'"),
        ("cap", "yes", "partition.cap", '"yes"', "true or false"),
        ("dim", 1.5, "model.dim", "1.5", "integer"),
        ("gamma_pba", "1", "method.gamma_pba", '"1"', "number"),
        ("gamma_pba", True, "method.gamma_pba", "true", "number"),
        ("tau", "0.1", "method.pba.tau", '"0.1"', "number"),
        ("use_pa", 0, "method.pba.use_pa", "0", "true or false"),
        ("pa_reduction", "max", "method.pba.pa_reduction", '"max"', "'mean'"),
        ("decorr", "logdet", "method.decorr", '"logdet"', "object"),
    ],
)
def test_wrong_values_are_refused_with_key_value_and_expectation(key, value, where, shown, expected):
    text = message_of(None, **{key: value})
    assert text.startswith(f"{where} = {shown} ")
    assert expected in text


@pytest.mark.parametrize("key", ["lr", "weight_decay", "gamma_pba", "clip"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_numbers_that_are_not_finite_are_refused(key, value):
    assert key in message_of(None, **{key: value})


@pytest.mark.parametrize("value", [np.int64(7), np.int32(7)])
def test_whole_numbers_of_numpy_are_numbers(value):
    assert load_config(None, {"rounds": value})[0].federation.rounds == 7


def test_real_numbers_of_numpy_are_numbers():
    assert load_config(None, {"lr": np.float64(0.5)})[0].optimizer.lr == 0.5


def test_a_whole_number_will_do_where_a_real_one_is_meant():
    rate = load_config(None, {"lr": 1})[0].table()["optimizer"]["lr"]
    assert rate == 1.0
    assert isinstance(rate, float)


@pytest.mark.parametrize(
    ("key", "value", "near"),
    [
        ("method", "fedblad", "fedblade"),
        ("method", "fedavg+fedecorr", "feddecorr"),
        ("dataset", "digit", "digits"),
        ("model", "smallcnn", "small_cnn"),
        ("partition", "dirichlit", "dirichlet"),
    ],
)
def test_unknown_parts_are_refused_with_the_nearest_name(key, value, near):
    text = message_of(None, **{key: value})
    assert value.rpartition("+")[2] in text
    assert f"'{near}'" in text


@pytest.mark.parametrize("key", ["method", "dataset", "model", "partition"])
def test_a_part_must_be_named_by_a_string(key):
    assert key in message_of(None, **{f"{key}.name": 5})


def test_a_cohort_larger_than_the_population_is_refused():
    text = message_of(None, num_clients=5, clients_per_round=6)
    assert "clients_per_round = 6" in text
    assert "num_clients = 5" in text


def with_plain_section(minimal, section):
    """The minimal configuration with one section written as a plain value."""
    tables = tomllib.loads(minimal)
    tables.pop(section, None)
    body = "".join(f'[{name}]\nname = "{table["name"]}"\n' for name, table in tables.items())
    return f'{section} = "fedavg"\n{body}'


@pytest.mark.parametrize("section", ["method", "dataset", "model", "federation", "local"])
@pytest.mark.parametrize("overrides", [{}, {"rounds": 3, "epochs": 2}], ids=["plain", "overridden"])
def test_a_section_that_is_no_table_is_refused(toml_file, minimal, section, overrides):
    text = message_of(toml_file(with_plain_section(minimal, section)), **overrides)
    assert section in text
    assert "table" in text


def test_a_name_that_is_no_string_is_refused_with_overrides_too(toml_file, minimal):
    text = message_of(toml_file(minimal.replace('"digits"', "3")), rounds=2)
    assert "dataset" in text


def test_a_table_of_overrides_for_an_unknown_method_is_refused(toml_file, minimal):
    text = message_of(toml_file(minimal + "[methods.fedpro]\nmu = 1.0\n"))
    assert "'fedprox'" in text


def test_an_unknown_knob_in_the_overrides_of_the_chosen_method_is_refused(toml_file, minimal):
    text = message_of(toml_file(minimal + "[methods.fedprox]\nmuu = 1.0\n"), method="fedprox")
    assert "method.muu" in text
    assert "'mu'" in text


def test_a_missing_part_is_named(toml_file, minimal):
    text = message_of(toml_file(minimal.replace('[dataset]\nname = "digits"', "")))
    assert "dataset.name" in text


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedetf", "fedblade", "feddecorr", "fedprox+feddecorr"])
def test_a_resolved_configuration_resolves_to_itself(method):
    config = load_config(None, {"method": method})[0]
    again = complete_config(tomllib.loads(config.to_toml()))
    assert again.table() == config.table()
    assert again.to_toml() == config.to_toml()


def test_a_seed_of_the_partition_fixes_the_split_for_every_seed_of_the_run():
    """Who holds what and what is held back for tuning; the order of clients and the start stay the run's."""
    fixed = {"test_split": "holdout", "evaluation.on": "validation"}
    runs = ((3, "auto"), (3, 3), (4, 3), (4, "auto"))
    setups = [
        prepare(load_config("quickstart", {**fixed, "seed": seed, "partition.seed": own, "rounds": 1})[0])
        for seed, own in runs
    ]
    same, fixed_3, fixed_4, other = (setup.clients.train.digest() for setup in setups)
    assert same == fixed_3 == fixed_4 != other
    assert setups[1].clients.order.tolist() == setups[2].clients.order.tolist()
    assert setups[1].cohorts[0].tolist() != setups[2].cohorts[0].tolist()
    with pytest.raises(Misconfigured, match=r"partition\.seed"):
        load_config("quickstart", {"partition.seed": -1})


def test_a_knob_of_a_part_goes_before_a_setting_of_the_same_name():
    """ResNet-20 has an `init` of its own, and where the weights of a module of the user's come from is another one."""
    config, _ = load_config("quickstart", {"model": "resnet20", "model.init": "default"})
    assert (config.model.knobs["init"], config.model_settings.init) == ("default", "seed")
    assert complete_config(config.table()) == config
    with pytest.raises(Misconfigured, match=r"model\.init"):
        load_config("quickstart", {"model": "resnet20", "model.init": "given"})
    # Another model does not inherit it.
    assert "init" not in apply_overrides({"model": {"name": "resnet20", "init": "default"}}, {"model": "mlp"})["model"]
