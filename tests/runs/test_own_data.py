"""Runs on a user's own data: whatever its layout and labels, the same run; predictions in the user's own terms."""

import logging

import numpy as np
import pytest
import torch

import fedblade
from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.core.tree import tree_digest
from fedblade.runs._model_inputs import as_trained
from support.shifted_images import ShiftedImages

SETTING = {"num_clients": 4, "clients_per_round": 2, "rounds": 2, "partition": "iid"}


@pytest.fixture(scope="module")
def digits():
    """Pixels [n, 1, 8, 8] in 0 to 240 and labels, 300 for training and 100 to test."""
    whole = datasets.get("digits").make()
    x, x_test = whole.train.inputs[:300] * 15, whole.test.inputs[:100] * 15
    return x, whole.train.labels[:300], x_test, whole.test.labels[:100]


def weights(result):
    return tree_digest(result.model.state_dict())


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_layout_and_labels_change_nothing_but_the_words(small_run, digits, engine, tmp_path, caplog):
    x, y, x_test, y_test = digits
    plain = small_run(dataset=digits, engine=engine, **SETTING)
    own = tuple((np.moveaxis(inputs, 1, -1), 100 * labels) for inputs, labels in ((x, y), (x_test, y_test)))
    caplog.clear()
    mine = small_run(dataset=(*own[0], *own[1]), engine=engine, out=tmp_path / "run", **SETTING)
    notes = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("channels last" in note for note in notes)
    assert any("0, 100, 200, …, 900 are numbered 0 to 9" in note for note in notes)
    assert weights(mine) == weights(plain)
    for model in (mine.model, fedblade.load(tmp_path / "run")):
        found = model.predict(own[1][0])
        assert torch.equal(found, 100 * plain.model.predict(x_test))
        assert torch.equal(found, model.predict(x_test))
        assert 100 * np.mean(found.numpy() == own[1][1]) == pytest.approx(mine.summary["final_accuracy"])
        assert model.facts["class_names"] == [str(100 * k) for k in range(10)]


class Trained:
    """What is known of a training set, without a network."""

    def __init__(self, facts):
        self.facts = facts

    def predict(self, inputs):
        return as_trained(self.facts, inputs)


def _check_scales(model, same):
    """Pictures a little outside of training's range pass, and so do dark ones and outliers; another scale does not."""
    outlier = same.copy()
    outlier[0, 0, 0, 0] += 1.5 * np.ptp(same) / 2
    for near in (same * 1.1 - 0.05, same + 0.05, outlier, same[:1] * 0.05, np.zeros_like(same)):
        assert len(model.predict(near)) == len(near)
    centred = (same - same.mean()) / same.std()
    for far in (2 * same - 1, centred, same * 2, same * 255, same * 0.05, same - same.mean() - np.ptp(same)):
        with pytest.raises(Misconfigured, match="Give inputs scaled as those of training"):
            model.predict(far)


def test_predict_takes_what_training_took(small_run, digits):
    x, y, x_test, y_test = digits
    pixels = small_run(dataset=(x[:, 0], y, x_test[:, 0], y_test), **SETTING).model
    expected = pixels.predict(x_test)
    for same in (x_test[:, 0], x_test.astype(np.int64), torch.from_numpy(x_test).float()):
        assert torch.equal(pixels.predict(same), expected)
    for other in (x_test / 255.0, x_test > 100, x_test / 127.5 - 1, x_test.astype(int) * 2):
        with pytest.raises(Misconfigured, match=r"inputs are \w+ from .*; training had uint8 from 0 to 255\. Give"):
            pixels.predict(other)
    real = small_run(dataset=(x / 255.0, y, x_test / 255.0, y_test), **SETTING).model
    assert torch.equal(real.predict(x_test / 255.0), expected)
    with pytest.raises(Misconfigured, match=r"inputs are uint8 from 0 to 240; training had float64 from 0 to 0.94"):
        real.predict(x_test)
    _check_scales(real, x_test / 255.0)
    standard = Trained(real.facts | {"value_range": [-1.0, 1.0]})
    _check_scales(standard, x_test / 127.5 - 1)
    with pytest.raises(Misconfigured, match=r"from 0 to 0.94.*training had float64 from -1 to 1"):
        standard.predict(x_test / 255.0)
    assert standard.predict(np.ones((15, 1, 8, 8))).shape == (15, 1, 8, 8)
    numbers = Trained(real.facts | {"value_range": [0.0, 16.0]})
    for other in (x_test / 127.5 - 1, x_test[:1] / 127.5 - 1, (x_test - x_test.mean()) / x_test.std()):
        with pytest.raises(Misconfigured, match="training had float64 from 0 to 16"):
            numbers.predict(other)
    assert len(numbers.predict(x_test / 15.0 - 0.2)) == 100
    for other in (x_test / 15.0, x_test[:1] / 15.5, x_test / 15.5):
        with pytest.raises(Misconfigured, match="training had uint8 from 0 to 255"):
            pixels.predict(other)
    for dark in (np.zeros((20, 1, 8, 8)), x_test[:1] // 15 * 1.0, x_test // 15, x_test[:1] / 3.0):
        assert len(pixels.predict(dark)) == len(dark)
    table = small_run(dataset=(x.reshape(300, -1), y, x_test.reshape(100, -1), y_test), **SETTING).model
    assert table.predict(x_test.reshape(100, -1) * 1.0).shape == (100,)
    with pytest.raises(Misconfigured, match="training had uint8 from 0 to 240"):
        table.predict(x_test.reshape(100, -1) / 255.0)


def test_a_table_of_bits_is_learnt(small_run):
    bits = np.random.default_rng(0).integers(0, 2, (400, 20), dtype=np.uint8)
    given = (bits[:300], bits[:300, 0].astype(int), bits[300:], bits[300:, 0].astype(int))
    result = small_run(dataset=given, lr=0.1, **(SETTING | {"rounds": 5, "epochs": 6}))
    assert result.summary["final_accuracy"] > 90


def test_models_of_older_versions_predict_as_before(small_run, digits, tmp_path):
    result = small_run(dataset=digits, out=tmp_path / "run", **SETTING)
    path = tmp_path / "run" / "model.safetensors"
    tensors, facts = read_tensors(path)
    old = {key: facts[key] for key in ("input_shape", "num_classes", "unit", "mean", "std", "class_names")}
    write_tensors(path, tensors, old)
    (tmp_path / "run" / "folder.json").unlink()
    model = fedblade.load(tmp_path / "run")
    assert torch.equal(model.predict(digits[2]), result.model.predict(digits[2]))
    with pytest.raises(Misconfigured, match="from 0 to 255"):
        model.predict(digits[2] / 255.0)


def test_random_transforms_are_drawn_anew_and_alike_in_every_engine(small_run, digits, tmp_path):
    x, y, x_test, y_test = digits
    setting = SETTING | {"dtype": "float64", "epochs": 2, "metrics": ["accuracy"]}

    def run(moved=True, **changes):
        torch.rand(3)  # what a program draws elsewhere must not matter
        return small_run(dataset=(ShiftedImages(x, y, moved), ShiftedImages(x_test, y_test)), **(setting | changes))

    sequential, stacked = (run(engine=engine) for engine in ("sequential", "stacked"))
    for name, leaf in sequential.model.state_dict().items():
        assert torch.allclose(stacked.model.state_dict()[name], leaf, rtol=0, atol=1e-10)
    frozen = run(moved=False, engine="sequential")
    assert weights(frozen) != weights(sequential)
    assert weights(run(engine="sequential", rounds=2)) == weights(sequential)
    with pytest.raises(KeyboardInterrupt):
        run(engine="sequential", out=tmp_path / "cut", listener=StopsAfterOne())
    resumed = run(engine="sequential", out=tmp_path / "cut", resume=True)
    assert weights(resumed) == weights(sequential)


class StopsAfterOne(fedblade.runs.RunListener):
    """Ends a run after its first round, as Ctrl-C does."""

    def on_round(self, record):
        raise KeyboardInterrupt


def test_a_file_of_pictures_with_channels_last_is_told(digits, tmp_path):
    x, y, x_test, y_test = digits
    last = [np.moveaxis(each, 1, -1) for each in (x, x_test)]
    np.savez(tmp_path / "own.npz", x_train=last[0], y_train=y + 1, x_test=last[1], y_test=y_test + 1)
    dataset = datasets.get("arrays").make(path=str(tmp_path / "own.npz"))
    assert dataset.input_shape == (1, 8, 8)
    assert dataset.label_values == tuple(range(1, 11))
    assert len(dataset.notes) == 2
