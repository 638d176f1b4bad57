"""My labels are strings."""

import numpy as np

import fedblade
from support.five_modules import Mlp, arrays


def test_labels_that_are_names(tmp_path):
    x, y, x_test, y_test = arrays("mlp")
    names = np.array(["owl", "cat", "dog"])
    result = fedblade.run(
        dataset=(x, names[y], x_test, names[y_test].tolist()), model=Mlp(), method="fedavg", num_clients=10, rounds=3,
        out=tmp_path / "run",
    )  # fmt: skip
    predicted = result.model.predict(x_test)
    assert np.isclose(100 * np.mean(predicted == names[y_test]), result.summary["final_accuracy"])
    assert np.array_equal(fedblade.load(tmp_path / "run", model=Mlp()).predict(x_test), predicted)
