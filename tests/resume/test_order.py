"""A checkpoint comes after the states it needs, however slow the disk is."""

import time

import numpy as np

import fedblade
from fedblade.core.state import DiskStore
from fedblade.experiment._checkpoints import Checkpoints


def test_a_checkpoint_waits_for_the_states_of_its_round(tmp_path, monkeypatch):
    put, save, seen = DiskStore.put, Checkpoints.save, []

    def slowly(self, client, round_, state):
        time.sleep(0.03)
        put(self, client, round_, state)

    def look(self, state, keep, facts):
        states = (tmp_path / "run" / "checkpoints" / "clients").rglob(f"{state.round - 1:06d}.safetensors")
        seen.append((state.round, len(list(states))))
        return save(self, state, keep, facts)

    monkeypatch.setattr(DiskStore, "put", slowly)
    monkeypatch.setattr(Checkpoints, "save", look)
    inputs, labels = np.random.default_rng(0).random((64, 6), dtype=np.float32), np.arange(64) % 4
    fedblade.run(
        method="scaffold", dataset=(inputs, labels, inputs, labels), partition="iid", num_clients=8,
        clients_per_round=5, rounds=3, epochs=1, model="mlp", hidden=[4], dim=4, out=tmp_path / "run",
    )  # fmt: skip
    assert seen == [(1, 5), (2, 5), (3, 5)]
