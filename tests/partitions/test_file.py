"""Splits as files: what is written is read again, and a file that does not fit is refused with the reason."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.partitions import (
    DirichletClients,
    Domain,
    Drawn,
    File,
    Shards,
    StochasticRemoval,
    save_split,
    split_test,
)

LABELS = np.arange(60) % 3


def test_a_saved_split_comes_back_with_its_digest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "split.json"
    for partitioner in (DirichletClients(0.2), StochasticRemoval(3), Domain(0.5)):
        split = partitioner.split(LABELS, 4, 0, num_classes=5, groups=np.arange(60) // 15)
        save_split(path, split)
        for name in ("split.json", str(path)):
            again = File(name).split(LABELS, 4, seed=9, num_classes=5)
            assert again.digest() == split.digest()
            assert (again.table() == split.table()).all()
            assert [again.removed(1, turn) for turn in range(40)] == [split.removed(1, turn) for turn in range(40)]
    assert [each.name for each in tmp_path.iterdir()] == ["split.json"]


def test_the_file_says_what_another_code_base_needs(tmp_path, caplog):
    split = Shards(2).split(LABELS, 5, 0)
    save_split(tmp_path / "split.json", split)
    content = json.loads((tmp_path / "split.json").read_text())
    little = b"".join(int(label).to_bytes(8, "little", signed=True) for label in LABELS)
    assert content == {
        "format": "fedblade split",
        "version": 1,
        "num_samples": 60,
        "num_classes": 3,
        "num_clients": 5,
        "class_sizes": [20, 20, 20],
        "labels_sha256": hashlib.sha256(little).hexdigest(),
        "clients": [part.tolist() for part in split.parts()],
    }
    File(str(tmp_path / "split.json")).split(LABELS, 5, 0)
    assert not caplog.records


def test_a_file_of_another_code_base_needs_its_clients_only(tmp_path, caplog):
    path = tmp_path / "theirs.json"
    for clients in ([[5, 0], [1, 3, 2]], {"1": [3, 2, 1], "0": [0, 5]}):
        path.write_text(json.dumps({"clients": clients}))
        split = File(str(path)).split(LABELS, 2, 0)
        assert [part.tolist() for part in split.parts()] == [[0, 5], [1, 2, 3]]
        assert len(split.unused()) == 55
        assert "has no labels_sha256" in caplog.text
        caplog.clear()
    tests = split_test("proportional", split, LABELS, 0)
    assert (tests.sizes() > 0).all()


def test_a_client_without_samples_may_be_allowed(tmp_path):
    path = tmp_path / "split.json"
    path.write_text('{"clients": [[0, 1], []]}')
    with pytest.raises(Misconfigured, match=r"leaves 1 clients without samples \(first: client 1\).*allow_empty=true"):
        File(str(path)).split(LABELS, 2, 0)
    assert File(str(path), allow_empty=True).split(LABELS, 2, 0).sizes().tolist() == [2, 0]


def test_a_file_that_does_not_fit_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "split.json"
    save_split(path, Shards(2).split(LABELS, 5, 0))
    good = json.loads(path.read_text())
    for text, reason in (
        ("{", "is not usable JSON: Expecting"),
        ("[" * 100_000, "is not usable JSON: its lists are nested too deeply"),
        ("[[0], [1]]", "has no entry 'clients'"),
        ('{"clients": []}', "lists no clients"),
        ('{"clients": {"a": [1]}}', "does not name its clients 0 to 0"),
        ({"version": 2}, "has format version 2, expected 1"),
        ({"clients": [[0], [1]]}, "has 2 clients, but num_clients=5. Set federation.num_clients=2"),
        ({"num_samples": 61}, "was made for other data: num_samples is 61 in the file and 60 in the data"),
        ({"num_classes": 4}, "num_classes is 4 in the file and 3 in the data"),
        ({"class_sizes": [19, 21, 20]}, "class_sizes is [19, 21, 20] in the file and [20, 20, 20] in the data"),
        ({"labels_sha256": "00"}, "labels_sha256 is 00 in the file"),
        ({"removal": {"every": "a", "seed": 0}}, f"'{path}': removal.every='a' is not usable"),
        ({"removal": {"every": 3, "seed": -1}}, f"'{path}': removal.seed=-1 is not usable"),
        ({"removal": {"every": 3}}, "removal is {'every': 3}, expected the numbers every and seed"),
        ({"clients": [[0], [1], [2], [3], [60]]}, "client 4 holds sample 60, but the samples are 0 to 59"),
        ({"clients": [[0], [1], [2], [3], [-1]]}, "client 4 holds sample -1"),
        ({"clients": [[0], [1, 7], [2], [7], [4]]}, "clients 1 and 3 hold sample 7 more than once"),
        ({"clients": [[0, 7, 7], [1], [2], [3], [4]]}, "client 0 holds sample 7 more than once; expected it once"),
        ({"clients": [[0], [1], [2], [3], 4]}, "the samples of client 4 are not a list of whole numbers"),
        ({"clients": [[0], [1], [2], [3], [1.5]]}, "the samples of client 4 are not a list of whole numbers"),
        ({"clients": [[0], [1], [2], [3], [10**30]]}, "the samples of client 4 are not a list of whole numbers"),
    ):
        path.write_text(text if isinstance(text, str) else json.dumps(good | text))
        with pytest.raises(Misconfigured) as caught:
            File(str(path)).split(LABELS, 5, 0)
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)
    other_order = LABELS[::-1].copy()
    path.write_text(json.dumps(good))
    with pytest.raises(Misconfigured, match="was made for other data: labels_sha256"):
        File(str(path)).split(other_order, 5, 0)


def test_what_cannot_be_read_or_written_is_named(tmp_path):
    with pytest.raises(Misconfigured, match=r"cannot read '.*absent.json' \(looked in .*No such file"):
        File(str(tmp_path / "absent.json")).split(LABELS, 5, 0)
    with pytest.raises(Misconfigured, match=r"cannot write '.*split.json'.*Choose another place"):
        save_split(Path(__file__) / "split.json", Shards(2).split(LABELS, 5, 0))
    with pytest.raises(Misconfigured, match="a DrawnSplit does not list the samples"):
        save_split(tmp_path / "split.json", Drawn(6).split(LABELS, 5, 0))
    assert list(tmp_path.iterdir()) == []
