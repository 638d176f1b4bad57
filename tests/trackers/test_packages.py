"""Each tracker against its real package, where that is installed: what was written is read back."""

import contextlib
import json
import socket
import sqlite3
import struct
import time

import pytest

import fedblade
from fedblade.runs import RunListener

SMALL = {"rounds": 3, "num_clients": 4, "clients_per_round": 2, "epochs": 1, "method": "fedavg"}

# Warnings that the packages raise about themselves, here where their own tools read what was written.
pytestmark = pytest.mark.filterwarnings("ignore")


class StopAfter(RunListener):
    """Interrupts the run once the trackers have been told of a round, in the client that comes next."""

    def __init__(self, round_):
        self.round = round_

    def on_client(self, round_, client):
        if round_ > self.round:
            raise KeyboardInterrupt


@pytest.fixture
def at_home(monkeypatch):
    """No address of the user's, and no connection beyond this machine."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    connect = socket.socket.connect

    def refuse(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            pytest.fail(f"a tracker connects to {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)


def two_sessions(out, name):
    """A run that is interrupted in its second round and goes on, its state saved every other round."""
    settings = {**SMALL, "checkpoint.every": 2}
    with pytest.raises(KeyboardInterrupt):
        fedblade.run(out=out, trackers=[name], listener=StopAfter(1), **settings)
    assert json.loads(next(out.glob("*/fedblade.json")).read_text())["logged"] == 1
    return fedblade.run(out=out, resume=True)


def numbers(history, key):
    return [(row["round"], pytest.approx(row[key], rel=1e-6)) for row in history]


@pytest.mark.usefixtures("at_home")
def test_tensorboard_reads_back_every_round_once(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = two_sessions(tmp_path / "run", "tensorboard").history
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    for key in ("test_accuracy", "test_loss", "bytes_up", "lr"):
        assert [(event.step, event.value) for event in found.Scalars(key)] == numbers(history, key)
    assert "clients" not in found.Tags()["scalars"]
    hparams = found.PluginTagToContent("hparams")
    assert b"optimizer.lr" in hparams["_hparams_/session_start_info"]


@pytest.mark.usefixtures("at_home")
def test_mlflow_reads_back_every_round_once(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    out = tmp_path / "run"
    history = two_sessions(out, "mlflow").history
    client = MlflowClient(tracking_uri=f"sqlite:///{out}/mlruns/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("fedblade").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "run"
    assert run.data.params["federation.rounds"] == "3"
    assert run.data.params["method.name"] == "fedavg"
    for key in ("test_accuracy", "test_loss", "bytes_up", "lr"):
        found = client.get_metric_history(run.info.run_id, key)
        assert sorted((metric.step, metric.value) for metric in found) == numbers(history, key)


@pytest.mark.usefixtures("at_home")
def test_mlflow_recovers_from_a_database_that_was_cut_short(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fedblade.run(out=out, listener=StopAfter(1), **SMALL)
    (out / "mlruns").mkdir()
    with contextlib.closing(sqlite3.connect(out / "mlruns" / "mlflow.db")) as database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        database.execute("INSERT INTO alembic_version VALUES ('cut short')")
        database.commit()
    fedblade.run(out=out, resume=True, trackers=["mlflow"])
    assert json.loads((out / "mlruns" / "fedblade.json").read_text())["logged"] == 3


@pytest.mark.usefixtures("at_home")
def test_mlflow_goes_where_the_user_says_and_says_so(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mine.db")
    notes = []

    class Notes(RunListener):
        def on_note(self, text):
            notes.append(text)

    fedblade.run(out=tmp_path / "run", trackers=["mlflow"], listener=Notes(), **SMALL)
    assert any(f"sent to sqlite:///{tmp_path}/mine.db" in note for note in notes)
    assert (tmp_path / "mine.db").is_file()
    assert not (tmp_path / "run" / "mlruns" / "mlflow.db").exists()


def wandb_records(path):
    """The records of an offline file: a header of 7 bytes, then blocks of 32 KiB with framed pieces of records."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        # 1: a whole record, 4: the last piece of one.
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def whole_file(path):
    """The records once the last one is there: a process of the package's own writes them, somewhat later."""
    for _ in range(100):
        records = list(wandb_records(path))
        if records and records[-1].WhichOneof("record_type") == "exit":
            return records
        time.sleep(0.1)
    return pytest.fail(f"'{path}' has no end")


@pytest.mark.usefixtures("at_home")
def test_wandb_stays_offline_and_keeps_its_id(tmp_path):
    pytest.importorskip("wandb")
    out = tmp_path / "run"
    history = two_sessions(out, "wandb").history
    identity = json.loads((out / "wandb" / "fedblade.json").read_text())["identity"]
    files = sorted(out.glob(f"wandb/offline-run-*/run-{identity}.wandb"), key=lambda path: path.stat().st_mtime_ns)
    assert len(files) == len(list(out.glob("wandb/*run-*/*.wandb"))) == 2
    found, settings = [], {}
    for record in (record for path in files for record in whole_file(path)):
        items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        found += [(record.history.step.num, items["test_accuracy"])] if items else []
        settings |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
    assert found == numbers(history, "test_accuracy")
    assert settings["optimizer.lr"] == history[0]["lr"]
