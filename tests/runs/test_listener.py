"""Listeners of `fedblade.run`."""

import pytest

import fedblade


class Watcher:
    """A listener as it was written before: no base class, and personal models under their former name."""

    def __init__(self):
        self.rounds, self.personal_models = [], []

    def on_start(self, run, history):
        self.description = run.description

    def on_client(self, round_, client):
        pass

    def on_round(self, record):
        self.rounds.append(record["round"])

    def on_own_model(self, done, total):
        self.personal_models.append((done, total))

    def on_note(self, text):
        pass


def test_the_former_name_of_a_listener_works_with_a_warning():
    watcher = Watcher()
    small = {"num_clients": 3, "clients_per_round": 2, "rounds": 2, "epochs": 1, "model": "mlp"}
    with pytest.warns(DeprecationWarning, match=r"pass listener=…, a fedblade.api.RunListener"):
        fedblade.run(method="fedavg-ft", watcher=watcher, **small)
    assert watcher.rounds == [1, 2]
    assert watcher.personal_models[-1] == (3, 3)
    assert "fedavg" in watcher.description
