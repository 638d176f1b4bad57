"""Trained networks: loaded ones predict what the run's own did, and ONNX gives the same numbers."""

import numpy as np
import pytest
import torch
from torch import nn

import fedblade
from fedblade.core.errors import CorruptFile, Misconfigured
from fedblade.core.registry import datasets
from fedblade.heads import _etf


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return datasets.get("digits").make().test.inputs


@pytest.mark.parametrize("method", ["fedavg", "fedetf", "fedblade"])
def test_a_loaded_model_predicts_as_the_result_does(small_run, tmp_path, images, method):
    result = small_run(out=tmp_path / "run", method=method)
    model = fedblade.load(tmp_path / "run")
    assert torch.equal(model.predict(images), result.model.predict(images))
    assert torch.equal(model(torch.from_numpy(images)), result.model(torch.from_numpy(images)))
    assert not model.training


def test_class_vectors_of_an_older_version_are_read_as_they_are(small_run, tmp_path, images, monkeypatch):
    """Older versions stored a matrix for more than 1,000 classes, here for ten."""
    result = small_run(out=tmp_path / "run", method="fedetf")
    monkeypatch.setattr(_etf, "MOST_DRAWN", 2)
    assert torch.equal(fedblade.load(tmp_path / "run").predict(images), result.model.predict(images))
    shapes = [
        tuple(leaf.shape) for name, leaf in small_run(method="fedetf").model.state_dict().items() if "etf" in name
    ]
    assert shapes == [(10,)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_predictions_have_the_accuracy_of_the_history(small_run, dtype):
    result = small_run(dtype=dtype, norm="batch")
    test = datasets.get("digits").make().test
    hits = result.model.predict(test.inputs).numpy() == test.labels
    assert 100 * hits.mean() == pytest.approx(result.summary["final_accuracy"])


def test_the_loss_of_the_history_is_that_of_the_loaded_logits(small_run, tmp_path):
    """In float64 nothing may be lost between training and a loaded model, the normalisation included."""
    result = small_run(out=tmp_path / "run", dtype="float64")
    test = datasets.get("digits").make().test
    logits = fedblade.load(tmp_path / "run")(torch.from_numpy(test.inputs))
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(test.labels))
    assert float(loss) == pytest.approx(result.history[-1]["test_loss"], rel=1e-12)


def test_arrays_and_tensors_are_predicted_alike(small_run, images):
    model = small_run().model
    assert torch.equal(model.predict(images), model.predict(torch.from_numpy(images)))
    assert model.predict(images[:0]).shape == (0,)


def test_features_have_the_width_of_the_model(small_run, images):
    assert small_run().model.features(torch.from_numpy(images[:5])).shape == (5, 8)


@pytest.mark.parametrize("shape", [(4, 64), (4, 8, 8), (4, 1, 9, 8), (1, 8, 8)])
def test_inputs_of_another_shape_are_refused(small_run, shape):
    with pytest.raises(Misconfigured, match="1, 8, 8"):
        small_run().model.predict(np.zeros(shape, dtype=np.uint8))


def test_inputs_that_are_no_numbers_are_refused(small_run):
    with pytest.raises(Misconfigured, match="inputs of type str are no array of numbers"):
        small_run().model.predict("picture.png")


def test_a_model_says_what_it_takes_and_gives(small_run):
    assert repr(small_run().model) == "TrainedModel(inputs [batch, 1, 8, 8], 10 classes)"


def test_a_folder_without_a_run_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(Misconfigured, match="holds no run"):
            fedblade.load(path)


def test_a_damaged_model_is_refused(small_run, tmp_path):
    small_run(out=tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match=r"model\.safetensors"):
        fedblade.load(tmp_path / "run")
