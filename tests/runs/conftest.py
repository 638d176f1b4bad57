"""The digits in a file, for runs in processes."""

from pathlib import Path

import numpy as np
import pytest

from fedblade.core.registry import datasets


@pytest.fixture(scope="session")
def digits_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits as an .npz file of the user's."""
    digits = datasets.get("digits").make()
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    train, test = digits.train, digits.test
    np.savez(path, x_train=train.inputs, y_train=train.labels, x_test=test.inputs, y_test=test.labels)
    return path
