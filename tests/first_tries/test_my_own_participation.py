"""A person chooses the clients with a function in a file."""

import pytest

import fedblade
from fedblade.api import Misconfigured, register_participation

SMALL = {
    "num_clients": 8, "clients_per_round": 3, "rounds": 3, "epochs": 1, "metrics": "accuracy", "model": "mlp",
    "device": "cpu",
}  # fmt: skip

MINE = """
import numpy as np

def worst_and_one_more(view, share=0.5):
    losses = view.losses(view.clients)
    worst = view.clients[np.argmax(losses)]
    others = view.clients[view.clients != worst]
    return [worst, view.generator.choice(others)]

def everyone_twice(view):
    return [*view.clients, *view.clients]
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def test_a_function_in_a_file(mine):
    result = fedblade.run("quickstart", participation=f"{mine}:worst_and_one_more", share=0.7, **SMALL)
    assert [len(set(record["clients"])) for record in result.history] == [2, 2, 2]


def test_a_function_that_names_clients_twice(mine):
    with pytest.raises(Misconfigured, match=r"client 0 more than once\. Return each client once"):
        fedblade.run("quickstart", participation=f"{mine}:everyone_twice", **SMALL)


def test_a_function_as_it_is():
    """What a person tries in a notebook: the error says how, and it works."""

    def first_two(view):
        return view.clients[:2]

    with pytest.raises(Misconfigured, match=r"register_participation\('my_name'\)\(function\)"):
        fedblade.run("quickstart", participation=first_two, **SMALL)
    register_participation("first_two")(first_two)
    result = fedblade.run("quickstart", participation="first_two", **SMALL)
    assert [record["clients"] for record in result.history] == [[0, 1]] * 3
