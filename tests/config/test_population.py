"""What the clients of the data decide, and cohorts that are lowered."""

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.runs import load_config
from support.for_every import for_every

GIVEN = {"dataset": "object", "clients": ("north", "south", "east")}


def config_of(source=None, **overrides):
    return load_config(source, overrides)[0]


def test_clients_of_the_data_take_the_place_of_the_partition():
    config = config_of(**GIVEN)
    assert (config.partition.name, config.federation.num_clients) == ("given", 3)
    assert config.dataset_settings.test_split == "proportional"
    assert config_of(**GIVEN, test_split="global").dataset_settings.test_split == "global"
    assert config_of(**GIVEN, num_clients=3) == config
    assert config_of(**GIVEN, **{"partition.seed": 5}).split_seed == 5


def test_a_folder_decides_as_a_file_of_a_configuration_says(tmp_path):
    folder = tmp_path / "wards"
    folder.mkdir()
    for name in ("north", "south"):
        np.savez(folder / f"{name}.npz", x=np.zeros((4, 2)), y=np.arange(4) % 2)
    file = tmp_path / "own.toml"
    text = f'dataset = {{name = "clients", path = "{folder}"}}\nmodel.name = "mlp"\nmethod.name = "fedavg"\n'
    file.write_text(text)
    config = config_of(file)
    assert (config.partition.name, config.federation.num_clients) == ("given", 2)
    assert config.federation.clients_per_round == 2
    for line, message in (
        ('partition = {name = "dirichlet", alpha = 0.1}', "partition = 'dirichlet' is for dividing one data set"),
        ("federation.num_clients = 5", "num_clients = 5, but the data come from 2 clients"),
    ):
        file.write_text(text + line)
        with pytest.raises(Misconfigured, match=message):
            config_of(file)


@pytest.mark.parametrize(
    ("overrides", "cohort"),
    [
        ({"num_clients": 4}, 4), ({"num_clients": 10}, 10), ({"unseen": 0.6}, 8), (GIVEN, 3),
        ({**GIVEN, "unseen": 0.2}, 2), ({"num_clients": 4, "clients_per_round": 3}, 3),
    ],
)  # fmt: skip
def test_a_cohort_that_nobody_asked_for_is_lowered(overrides, cohort):
    config = config_of(**overrides)
    assert config.federation.clients_per_round == cohort
    lowered = "clients_per_round" not in overrides and cohort < 10
    assert len(config.notes) == lowered
    assert not lowered or f"is lowered from 10 to {cohort}" in config.notes[0]


def test_a_file_that_contradicts_itself_is_refused(tmp_path):
    file = tmp_path / "own.toml"
    parts = 'dataset.name = "digits"\npartition.name = "iid"\nmodel.name = "mlp"\nmethod.name = "fedavg"\n'
    file.write_text(parts + "federation = {num_clients = 5, clients_per_round = 8}\n")
    with pytest.raises(Misconfigured, match="clients_per_round = 8 is more than"):
        config_of(file)


REFUSED = {
    "alpha": ({**GIVEN, "alpha": 0.1}, "partition.alpha is for dividing one data set, and these data come from 3"),
    "partition": ({**GIVEN, "partition": "iid"}, "partition = 'iid' is for dividing one data set"),
    "population": ({**GIVEN, "num_clients": 4}, r"num_clients = 4, but the data come from 3 clients \(north, south"),
    "cohort": ({**GIVEN, "clients_per_round": 4}, "clients_per_round = 4 is more than"),
    "a number": ({"clients": 4}, "clients = 4 is no data of clients"),
    "no clients": ({"partition": "given"}, "needs the group of each sample"),
}


@for_every(REFUSED)
def test_what_contradicts_the_data_is_refused(case):
    overrides, message = REFUSED[case]
    with pytest.raises(Misconfigured, match=message):
        config_of(**overrides).partition.make().split([0, 1, 0, 1], 2, 0)
