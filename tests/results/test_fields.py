"""A metric describes its numbers once: the run stores the description, and everything that shows it reads it there."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

import fedblade
from fedblade.core.fields import Field, restored, undescribed
from fedblade.core.registry import metrics
from fedblade.results import built_in_fields, described_fields, group_runs, read_runs
from fedblade.runs import RunListener
from fedblade.watch import show

TINY = {
    "method": "fedavg",
    "model": "mlp",
    "hidden": [8],
    "dim": 4,
    "num_clients": 4,
    "clients_per_round": 2,
    "rounds": 2,
    "epochs": 1,
}

USER_METRIC = """
import torch
from fedblade.core.fields import Field
from fedblade.core.metric import Metric
from fedblade.core.sums import DataPass

LENGTH = DataPass("logit_length", lambda view: {"sum": view.logits.double().square().sum()})


def logit_length():
    field = Field("logit_length", "Length of the logits", "length", "Long logits mean a sure model.", short="logits")
    return Metric((LENGTH,), lambda totals: {"logit_length": float(totals["logit_length"]["sum"])}, fields=(field,))


def plain_length():
    return Metric((LENGTH,), lambda totals: {"plain_length": float(totals["logit_length"]["sum"])})
"""


@pytest.fixture
def run_of(tmp_path):
    """A run with both metrics of a user's file."""
    (tmp_path / "mine.py").write_text(USER_METRIC)
    names = [f"{tmp_path / 'mine.py'}:{name}" for name in ("logit_length", "plain_length")]
    fedblade.run(
        "quickstart",
        out=tmp_path / "run",
        listener=RunListener(),
        **TINY,
        metrics=["accuracy", "erank_feature", *names],
    )
    return tmp_path / "run"


def watched(folder) -> str:
    console = Console(width=120, file=io.StringIO())
    show(folder, console)
    return console.file.getvalue()


def test_a_metric_of_a_user_is_described_and_shown(run_of):
    stored = json.loads((run_of / "metrics.json").read_text())
    assert list(stored) == [
        "test_accuracy", "test_loss", "erank_feature", "erank_feature_correlation", "logit_length"
    ]  # fmt: skip
    assert stored["logit_length"]["reading"] == "Long logits mean a sure model."
    (record,) = read_runs([run_of])
    assert record.left_out == ()
    assert record.fields["logit_length"].label == "Length of the logits"
    assert record.fields["erank_feature"] == built_in_fields()["erank_feature"]
    # The other metric describes nothing, so that its number is shown under its name.
    assert record.fields["plain_length"] == Field("plain_length", "plain length")
    assert not {"round", "seconds", "lr", "bytes_up", "loss_supervised"} & record.fields.keys()
    text = watched(run_of)
    assert "logits" in text
    assert "plain length" in text
    assert "effective rank, features" in text


def test_fields_come_in_reading_order(run_of):
    names = [field.name for field in described_fields(group_runs(read_runs([run_of])))]
    assert names == [
        "test_accuracy", "test_loss", "erank_feature", "logit_length", "plain_length", "erank_feature_correlation"
    ]  # fmt: skip


def test_a_run_without_descriptions_has_the_built_in_ones(run_of):
    (run_of / "metrics.json").unlink()
    (record,) = read_runs([run_of])
    assert record.fields["erank_feature"] == built_in_fields()["erank_feature"]
    assert record.fields["logit_length"] == undescribed("logit_length")
    assert "effective rank, features" in watched(run_of)


def test_a_broken_description_is_named_and_the_number_is_shown(run_of):
    stored = json.loads((run_of / "metrics.json").read_text())
    stored["logit_length"]["low"] = "much"
    stored["erank_feature"]["of_a_later_version"] = 1
    (run_of / "metrics.json").write_text(json.dumps(stored))
    (record,) = read_runs([run_of])
    assert record.left_out == ("the description of logit_length in run/metrics.json",)
    assert record.fields["logit_length"] == undescribed("logit_length")
    assert record.fields["erank_feature"] == built_in_fields()["erank_feature"]


def test_every_number_of_a_built_in_metric_is_described():
    described = {entry.name: {field.name for field in entry.make().fields} for entry in metrics.entries()}
    assert sum(map(len, described.values())) == len(set().union(*described.values()))
    numbers = {"spectrum": {"significant_values", "zero_variance_share"}, "nc_error": {"nc_error", "nc_error_centred"}}
    assert all(described[name] == expected for name, expected in numbers.items())
    assert {name for name, fields in described.items() if not fields} == {"class_means", "local_spectrum"}
    for field in built_in_fields().values():
        assert field.name in ("test_accuracy", "test_loss") or field.reading.endswith("."), field.name
        assert len({other.short_label for other in built_in_fields().values()}) == len(built_in_fields())


@pytest.mark.parametrize(
    "changes", [{}, {"low": 0.0, "high": 1.0, "variant": "a", "subject": "clients", "main": False}]
)
def test_a_field_survives_its_file(changes):
    field = replace(Field("x", "The label", "degrees", "A reading.", number_format=".1f"), **changes)
    assert restored("x", json.loads(json.dumps(field.description()))) == field


@pytest.mark.parametrize(
    "broken",
    [
        [],
        "text",
        {},
        {"label": 3},
        {"label": "a", "low": True},
        {"label": "a", "number_format": "q"},
        {"label": "a", "main": 1},
    ],
)
def test_broken_descriptions_give_no_field(broken):
    assert restored("x", broken) is None


def test_a_broken_file_of_descriptions_is_named_and_does_not_stop_a_report(tmp_path):
    fedblade.run(out=tmp_path / "run", **TINY)
    (tmp_path / "run" / "metrics.json").write_text("[")
    (run,) = read_runs([tmp_path])
    assert any("metrics.json" in note for note in run.left_out)
    assert run.fields["test_accuracy"].label
