"""My data are a Hugging Face data set: pictures, token ids or columns."""

import numpy as np
import pytest

import fedblade
from support.five_modules import Words

hub = pytest.importorskip("datasets")
pictures = pytest.importorskip("PIL.Image")
FEW = {"num_clients": 2, "clients_per_round": 2, "rounds": 2, "partition": "iid", "method": "fedavg"}


def pets(count, sizes=(8,)):
    """Cats are dark and dogs are bright."""
    images = [pictures.fromarray(np.full((sizes[k % len(sizes)], 8, 3), 200 * (k % 2), np.uint8)) for k in range(count)]
    features = hub.Features({"image": hub.Image(), "label": hub.ClassLabel(names=["cat", "dog"])})
    return hub.Dataset.from_dict({"image": images, "label": [k % 2 for k in range(count)]}, features=features)


def test_a_dataset_dict_of_pictures(caplog):
    result = fedblade.run(dataset=hub.DatasetDict({"train": pets(40), "test": pets(10)}), model="mlp", **FEW)
    assert result.model.facts["class_names"] == ["cat", "dog"]
    assert "bytes are pixels and are divided by 255" in caplog.text
    assert result.model.predict(np.full((1, 8, 8, 3), 200, np.uint8)).shape == (1,)
    with pytest.raises(fedblade.api.Misconfigured, match=r"8×7 RGB, 8×8 RGB.*ds.map\(lambda row"):
        fedblade.run(dataset=pets(10, sizes=(7, 8)), model="mlp", **FEW)


def test_a_dataset_of_token_ids(caplog):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 20, (60, 6)).tolist()
    texts = hub.Dataset.from_dict({"ids": rows, "intent": ["ask", "tell"] * 30, "mask": [[1] * 6] * 60})
    with pytest.raises(fedblade.api.Misconfigured, match=r"no column 'label'.*ds.rename_column\('NAME', 'label'\)"):
        fedblade.run(dataset=texts, model=Words(), **FEW)
    texts = texts.rename_column("intent", "label")
    with pytest.raises(fedblade.api.Misconfigured, match=r"ds.select_columns\(\['ids', 'label'\]\)"):
        fedblade.run(dataset=texts, model=Words(), **FEW)

    caplog.clear()
    model = fedblade.run(dataset=texts.select_columns(["ids", "label"]), model=Words(), **FEW).model
    assert "12 of 60 samples are held out" in caplog.text
    assert set(model.predict(np.array(rows))) <= {"ask", "tell"}


def test_a_dataset_of_columns():
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, 80).tolist()
    people = hub.Dataset.from_dict({"age": age, "city": ["Oslo", "Lima"] * 40, "label": [int(a > 50) for a in age]})
    model = fedblade.run(dataset=people, model="mlp", **FEW).model
    assert len(model.predict({"age": [30, 80], "city": ["Oslo", "Lima"]})) == 2
