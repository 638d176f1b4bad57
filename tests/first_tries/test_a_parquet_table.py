"""My data are two parquet files that pandas wrote, one to train and one to test."""

import numpy as np
import pandas as pd

import fedblade


def test_a_parquet_table(tmp_path):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"x": rng.normal(size=240), "colour": rng.choice(["red", "blue"], 240)})
    frame["label"] = (frame["x"] > 0).astype(int) + (frame["colour"] == "red")
    frame[:180].to_parquet(tmp_path / "train.parquet")
    frame[180:].to_parquet(tmp_path / "test.parquet")

    result = fedblade.run(
        dataset="files", model="mlp", method="fedavg", num_clients=4, clients_per_round=2, rounds=3,
        **{"dataset.path": str(tmp_path / "train.parquet"), "dataset.test_path": str(tmp_path / "test.parquet")},
    )  # fmt: skip
    predicted = result.model.predict(frame[180:])  # the data frame itself, or the file
    accuracy = 100 * (predicted.numpy() == frame["label"][180:]).mean()
    assert np.isclose(accuracy, result.summary["final_accuracy"])
    assert np.array_equal(result.model.predict(tmp_path / "test.parquet"), predicted)
