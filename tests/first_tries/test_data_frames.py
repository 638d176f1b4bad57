"""My data are in pandas: one frame with labels beside it, or a frame for each hospital."""

import numpy as np
import pandas as pd
import pytest

import fedblade
from fedblade.api import Misconfigured

RNG = np.random.default_rng(4)
PATIENTS = pd.DataFrame({"age": RNG.integers(20, 90, 120), "ward": RNG.choice(["east", "west"], 120)})
OUTCOME = pd.Series(np.where(PATIENTS["age"] + 20 * (PATIENTS["ward"] == "east") > 60, "ill", "well"))
SETTINGS = {"model": "mlp", "method": "fedavg", "rounds": 2, "epochs": 1, "metrics": "accuracy", "device": "cpu"}


def test_a_frame_and_its_labels(caplog):
    result = fedblade.run(dataset=(PATIENTS, OUTCOME), num_clients=3, partition="iid", **SETTINGS)
    assert "24 of 120 samples are held out" in caplog.text
    assert "2 columns become 3 inputs; numbers are standardised" in caplog.text
    assert set(result.model.predict(PATIENTS[:5])) <= {"ill", "well"}


def test_a_frame_for_each_hospital_trains_as_files_do(tmp_path):
    halves = {"north": slice(0, 70), "south": slice(70, 120)}
    clients = {name: (PATIENTS[rows], OUTCOME[rows]) for name, rows in halves.items()}
    for name, rows in halves.items():
        PATIENTS[rows].assign(label=OUTCOME[rows]).to_csv(tmp_path / f"{name}.csv", index=False)
    frames = fedblade.run(clients=clients, **SETTINGS)
    files = fedblade.run(dataset="clients", **{"dataset.path": str(tmp_path)}, **SETTINGS)
    for name, leaf in frames.model.state_dict().items():
        assert np.array_equal(leaf, files.model.state_dict()[name]), name
    assert [client["global_accuracy"] for client in frames.clients] == [
        client["global_accuracy"] for client in files.clients
    ]


def test_the_first_mistakes():
    missing = PATIENTS.assign(age=PATIENTS["age"].where(PATIENTS["age"] > 30))
    for dataset, words in (
        (PATIENTS, "dataset is of type DataFrame; expected .*arrays"),
        ((missing, OUTCOME), r"no value in column 'age'.*frame\['age'\].fillna"),
        ((PATIENTS.assign(day=pd.Timestamp("2024-01-02")), OUTCOME), r"date or time .*frame.drop\(columns='day'\)"),
    ):
        with pytest.raises(Misconfigured, match=words):
            fedblade.run(dataset=dataset, num_clients=3, **SETTINGS)
