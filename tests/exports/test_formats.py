"""Exported models give the logits of the run's own model in a process that has no fedblade."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import fedblade
from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from support import load_exported
from support.five_modules import Cnn, arrays

TINY = {"num_clients": 6, "clients_per_round": 3, "rounds": 2, "epochs": 1, "metrics": ["accuracy"], "seed": 3}
OWN = {key: value for key, value in TINY.items() if key != "epochs"} | {"local.epochs": 1}


def digits_run(**settings: Any) -> fedblade.Result:
    return fedblade.run("quickstart", **(TINY | settings))


def own_run(data: Any, **settings: Any) -> fedblade.Result:
    return fedblade.run(dataset=data, **(OWN | {"num_clients": 4, "clients_per_round": 4} | settings))


def digits() -> np.ndarray:
    return datasets.get("digits").make().test.inputs


def pixels() -> tuple[np.ndarray, ...]:
    """Pictures as bytes."""
    x, y, x_test, y_test = arrays("cnn")
    as_bytes = [(40 * part + 90).clip(0, 255).astype("uint8") for part in (x, x_test)]
    return as_bytes[0], y, as_bytes[1], y_test


def characters() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 20, (160, 5)), rng.integers(0, 3, 160)
    return x[:120], y[:120], x[120:], y[120:]


def table() -> tuple[np.ndarray, ...]:
    """A table of float64, with labels that are no class numbers."""
    x, y, x_test, y_test = arrays("sequential")
    return x.astype("float64"), 10 * y + 5, x_test.astype("float64"), 10 * y_test + 5


QUICK: dict[str, Callable[[], tuple[fedblade.Result, np.ndarray]]] = {
    "projector": lambda: (digits_run(method="fedblade"), digits()),
}
SLOW: dict[str, Callable[[], tuple[fedblade.Result, np.ndarray]]] = {
    "fixed_simplex": lambda: (digits_run(method="fedetf", model="mlp"), digits()),
    "normalised": lambda: (digits_run(method="spherefed", model="mlp"), digits()),
    "average": lambda: (digits_run(method="fedavg"), digits()),
    "double": lambda: (digits_run(method="fedgela", model="mlp", dtype="float64"), digits()),
    "own_module": lambda: (own_run(pixels(), model=Cnn()), pixels()[2]),
    "characters": lambda: (own_run(characters(), model="char_lstm"), characters()[2]),
    "table": lambda: (own_run(table(), model="mlp"), table()[2]),
}


def in_a_fresh_process(folder: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    np.savez(folder / "inputs.npz", **inputs)
    files = [load_exported.__file__, folder / "inputs.npz", folder / "logits.npz"]
    command = [sys.executable, "-W", "error", "-c", load_exported.WITHOUT_FEDBLADE, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "logits.npz"))


def check_round_trip(folder: Path, cases: dict[str, Any]) -> dict[str, tuple[fedblade.Result, np.ndarray]]:
    """Export in both formats, load without fedblade, and compare the logits of one input and of all others."""
    made = {name: make() for name, make in cases.items()}
    for name, (result, _) in made.items():
        for form, ending in (("onnx", ".onnx"), ("torch", ".pt2")):
            assert result.export(folder / f"{name}{ending}", form) == folder / f"{name}{ending}"
    found = in_a_fresh_process(folder, {name: inputs for name, (_, inputs) in made.items()})
    assert len(found) == 2 * len(cases)
    for key, logits in found.items():
        result, inputs = made[Path(key).stem]
        expected = result.model(torch.from_numpy(inputs)).detach().numpy()
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5, err_msg=key)
    return {name: (result, found[f"{name}.onnx"]) for name, (result, _) in made.items()}


def test_an_onnx_file_and_a_program_give_the_accuracy_of_the_run(tmp_path):
    """Both take pixels as the data set holds them, one or many, and know the classes."""
    ((result, logits),) = check_round_trip(tmp_path, QUICK).values()
    hits = logits.argmax(1) == datasets.get("digits").make().test.labels
    assert 100 * hits.mean() == pytest.approx(result.summary["final_accuracy"])
    description = json.loads((tmp_path / "projector.json").read_text())
    assert description["class_names"] == [str(digit) for digit in range(10)]
    assert description["input"] == {
        "name": "inputs", "dtype": "uint8", "shape": ["batch", 1, 8, 8], "shape_of_training_data": None
    }  # fmt: skip
    assert description["preprocessing"]["done_by"] == "the model"
    for file in tmp_path.glob("projector.*"):
        assert str(Path(fedblade.__file__).parents[1]).encode() not in file.read_bytes(), f"{file} names a folder"
    session = onnxruntime.InferenceSession(tmp_path / "projector.onnx")
    assert session.get_inputs()[0].shape == ["batch", 1, 8, 8]
    assert session.get_outputs()[0].shape == ["batch", 10]
    stored = json.loads(session.get_modelmeta().custom_metadata_map["fedblade"])
    assert {"file": "projector.pt2"} | stored == description


@pytest.mark.slow
def test_every_kind_of_model_gives_the_same_logits_without_fedblade(tmp_path):
    check_round_trip(tmp_path, SLOW)


def test_tensors_fit_the_users_own_module(tmp_path):
    """In plain torch: the module with the weights takes inputs that are normalised as the header says."""
    result = own_run(pixels(), model=Cnn(), method="fedavg")
    path = result.export(tmp_path / "mine.safetensors", "safetensors")
    module = Cnn().eval()
    module.load_state_dict(load_file(path))
    with safe_open(path, "pt") as file:
        how = json.loads(file.metadata()["fedblade"])["preprocessing"]
    assert how["done_by"] == "the caller"
    inputs = torch.from_numpy(pixels()[2])
    mean, std = (torch.tensor(how[name]).reshape(-1, 1, 1) for name in ("mean", "std"))
    with torch.no_grad():
        torch.testing.assert_close(module((inputs / how["unit"] - mean) / std), result.model(inputs))


def test_labels_of_the_user_are_the_names_of_the_classes(tmp_path):
    path = own_run(table(), model=nn.Sequential(nn.Linear(8, 3))).export(tmp_path / "t.safetensors", "safetensors")
    description = json.loads(path.with_suffix(".json").read_text())
    assert (description["class_names"], description["label_values"]) == (["5", "15", "25"], [5, 15, 25])


@pytest.mark.parametrize("method", ["fedper", "fedbn", "local_ce"])
def test_a_method_without_a_global_model_is_refused(small_run, tmp_path, method):
    with pytest.raises(Misconfigured, match=f"'{method}' has no global model"):
        small_run(method=method).export(tmp_path / "model.pt2", "torch")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_and_a_path_that_cannot_be_are_refused(small_run, tmp_path):
    result = small_run()
    with pytest.raises(Misconfigured, match=r"no format 'onx'.*'onnx'"):
        result.export(tmp_path / "m", "onx")
    for path in (tmp_path, tmp_path / "m.json", tmp_path / "m.onnx"):
        with pytest.raises(Misconfigured, match="cannot be the file"):
            result.export(path, "safetensors")


def test_a_second_export_replaces_the_first_and_no_other_file(small_run, tmp_path):
    result, file = small_run(), tmp_path / "mine.safetensors"
    for _ in range(2):
        result.export(file, "safetensors")
    file.with_suffix(".json").write_text('{"of": "the user"}')
    with pytest.raises(Misconfigured, match=r"would replace '.*mine\.json'"):
        result.export(file, "safetensors")
    assert file.with_suffix(".json").read_text() == '{"of": "the user"}'


def test_a_missing_extra_is_named(small_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(Misconfigured, match=r"fedblade\[onnx\]"):
        small_run().export(tmp_path / "model.onnx")
