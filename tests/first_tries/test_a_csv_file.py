"""My data are a CSV file; I want a model that takes new rows of it, today and after loading it."""

import csv

import numpy as np
import pytest

import fedblade


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """`patients.csv`: numbers, a text, and an outcome that depends on both. `new.csv` has no outcome."""
    rng = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("table")
    age, ward = rng.integers(20, 90, 300), rng.choice(["north", "south"], 300)
    weight = rng.normal(70_000, 12_000, 300).round()
    outcome = np.where(age + 30 * (ward == "north") > 70, "ill", "well")
    for name, count in (("patients", 300), ("new", 20)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["age", "weight", "ward", *(["outcome"] if name == "patients" else [])])
            columns = (age, weight, ward, *([outcome] if name == "patients" else []))
            rows.writerows(list(zip(*columns, strict=True))[:count])
    return folder


SETTINGS = {"num_clients": 4, "clients_per_round": 2, "rounds": 3, "model": "mlp", "method": "fedavg"}


def run(table, **more):
    path = {"dataset": "files", "dataset.path": str(table / "patients.csv"), "dataset.label": "outcome"}
    return fedblade.run(**path, **SETTINGS, **more)


def test_a_csv_file(table, tmp_path, caplog):
    result = run(table, out=tmp_path / "run")
    said = " · ".join(record.getMessage() for record in caplog.records)
    assert "60 of 300 samples are held out" in said
    assert "3 columns become 4 inputs; numbers are standardised" in said
    assert "divided among 4 clients by dirichlet with alpha = 0.1" in said

    model = fedblade.load(tmp_path / "run")
    predicted = model.predict(table / "new.csv")
    assert set(predicted) <= {"ill", "well"}
    assert np.array_equal(result.model.predict(table / "new.csv"), predicted)
    with (table / "new.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert model.predict(rows).tolist() == predicted.tolist()


def test_both_engines_train_the_same_model_on_a_table(table):
    sides = {
        engine: run(table, engine=engine, dtype="float64").model.state_dict() for engine in ("sequential", "stacked")
    }
    for name, leaf in sides["sequential"].items():
        np.testing.assert_allclose(leaf, sides["stacked"][name], rtol=1e-9, atol=1e-12)


def test_the_label_column_has_to_be_named(table):
    with pytest.raises(fedblade.api.Misconfigured, match=r"no label column 'label'.*age, outcome, ward, weight"):
        fedblade.run(**{"dataset": "files", "dataset.path": str(table / "patients.csv")}, **SETTINGS)
