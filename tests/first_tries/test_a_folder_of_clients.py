"""Each hospital has sent a file. I put the files into one folder and use the command line."""

import json
import subprocess
import sys

import numpy as np
import pytest

import fedblade
from fedblade.api import Misconfigured
from support.five_modules import arrays

QUICK = ("--set", "model=mlp", "--set", "method=fedavg", "--set", "rounds=1", "--set", "metrics=accuracy")


@pytest.fixture
def folder(tmp_path):
    x, y, x_test, y_test = arrays("mlp")
    place = tmp_path / "hospitals"
    (place / "south").mkdir(parents=True)
    np.savez(place / "north.npz", x_train=x[:90], y_train=y[:90])
    np.savez(place / "south" / "train.npz", x=x[90:], y=y[90:])
    np.savez(place / "south" / "test.npz", x=x_test, y=y_test)
    return place


def test_a_folder_of_clients(folder, tmp_path):
    data = ("--set", "dataset=clients", "--set", "dataset.path=hospitals")
    command = [sys.executable, "-m", "fedblade", "run", *data, *QUICK, "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "clients_per_round is lowered from 10 to 2" in done.stdout
    assert "test samples: north gave none, so a fifth" in done.stdout
    lines = (tmp_path / "run" / "clients.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["north", "south"]


def test_the_first_mistakes(folder, tmp_path):
    with_notes = tmp_path / "with-notes"
    with_notes.mkdir()
    (with_notes / "readme.txt").write_text("")
    for path, settings, message in (
        (folder, {"num_clients": 3}, r"num_clients = 3, but the data come from 2 clients \(north and south\)"),
        ("", {}, "needs a folder: --set dataset.path=FOLDER"),
        (with_notes, {}, "has 'readme.txt', which is no file of a client"),
    ):
        with pytest.raises(Misconfigured, match=message):
            fedblade.run(dataset="clients", **{"dataset.path": str(path)}, **settings)
