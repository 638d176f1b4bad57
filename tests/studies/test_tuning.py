"""Search spaces: small, possible for every method, and used by a sweep that tunes."""

import math

import fedblade
from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import complete_config
from fedblade.core.registry import methods, regularisers
from fedblade.methods import compose
from fedblade.presets.catalogue import read_config
from fedblade.studies import Axis, tuning_axes

NAMES = [*methods.names(), *(f"fedavg+{name}" for name in regularisers.names())]
SMALL = {"model": "mlp", "hidden": [16], "dim": 8, "rounds": 1, "epochs": 1, "num_clients": 4, "clients_per_round": 2}


def test_every_method_has_a_small_search_space_of_values_it_accepts():
    for name in NAMES:
        space = compose(name).search_space
        assert 3 <= math.prod(map(len, space.values())) <= 12, name
        for key, values in space.items():
            assert len(set(values)) == len(values) > 1, name
            for value in values:
                tables = apply_overrides({**read_config("quickstart"), "seeds": [1]}, {"method": name, key: value})
                tables.pop("seeds")
                complete_config(tables).build_method()


def test_a_method_without_knobs_tunes_the_learning_rate():
    assert list(compose("fedavg").search_space) == ["lr"]
    assert list(compose("fedprox+lddecorr").search_space) == ["lddecorr.lambda_decorr"]


def test_the_axes_of_several_methods_are_their_own_and_given_axes_win():
    axes = tuning_axes(None, (), {}, [Axis("method", ("fedprox", "moon")), Axis("mu", (0.5, 0.7), "moon")])
    assert [(axis.method, axis.key) for axis in axes[2:]] == [("fedprox", "mu")]
    assert [axis.key for axis in tuning_axes(None, (), {"algorithm": "fedla"}, [])] == ["phi"]


def test_a_sweep_that_tunes_chooses_on_validation_data_and_tests():
    tuned = fedblade.sweep(tune=True, method="fedla", seeds=[1], **SMALL)
    assert [trial.values["phi"] for trial in tuned.trials] == ["identity", "exp", "sqrt"]
    assert {result.summary["evaluated_on"] for trial in tuned.trials for result in trial.results} == {"validation"}
    assert [result.summary["evaluated_on"] for result in tuned.chosen["fedla"].tested] == ["test"]


def test_a_method_of_ones_own_brings_its_space(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from fedblade.api import fedavg, register_method\n"
        "@register_method('mine_tuned', tune={'pull': (0.1, 0.2)})\n"
        "def mine(pull: float = 0.1):\n    return fedavg()\n"
    )
    assert compose(f"{file}:mine").search_space == {"pull": (0.1, 0.2)}
