"""Samples that change in the middle of a run are seen and named, and nobody can guess samples from their digests."""

import json
import shutil
import stat
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedblade.core.errors import RunFailed
from fedblade.flower import _node_setup
from fedblade.flower._node_data import own_dataset
from fedblade.flower._salted_digest import salted_digest
from support.node_runs import config_of, digest, opened, stopped, trained
from support.three_wards import CHANGES, apart, saved, together, ward

OTHER = "its samples have changed since the run began"


def noise(x, y, x_test, y_test):
    """The same labels with other pictures."""
    return np.random.default_rng(0).random(x.shape).astype(x.dtype), y, x_test, y_test


def other_tests(x, y, x_test, y_test):
    return x, y, x_test[::-1].copy(), y_test


def overwritten(folder, change):
    """The file of the second ward, with other samples."""
    (folder / "new").mkdir(exist_ok=True)
    saved(folder / "new", [ward(0), change(*ward(1)), ward(2)])
    return partial(shutil.copyfile, folder / "new" / "1.npz", folder / "data" / "1.npz")


def after_round(round_, act):
    """Does something once, when the last client has answered in a round (from 0)."""
    done = []

    def tamper(request, reply):
        if not done and request.kind == "train" and (request.facts["round"], request.facts["client"]) == (round_, 2):
            done.append(act())
        return [reply]

    return tamper


@pytest.fixture
def wards(tmp_path):
    """Makes a run of three wards with files of their own."""
    files = saved(tmp_path / "data", [ward(k) for k in range(3)])
    return lambda **changes: apart(tmp_path, files, config=config_of("fedavg", **CHANGES | changes))


@pytest.mark.parametrize("change", [noise, other_tests])
@pytest.mark.parametrize("process", ["new", "same"])
def test_pictures_that_change_in_the_middle_of_a_run_are_named(change, process, wards, tmp_path):
    """Whether a process answers all requests, or each request a new one."""
    run = wards(rounds=3)
    overwrite = overwritten(tmp_path, change)

    def act():
        overwrite()
        if process == "new":
            _node_setup.node_setup.cache_clear()
            _node_setup.samples_digest.cache_clear()

    run.transport.tamper = after_round(0, act)
    far = run.trained()
    assert [row["contributors"] for row in far.history] == [[0, 1, 2], [0, 2], [0, 2]]
    told = [(event["client"], event["node"], event["kind"]) for event in run.refused()]
    assert told == [(1, "51", kind) for kind in ("measure", "train", "measure", "train", "measure")][: len(told)]
    assert all(OTHER in event["reason"] for event in run.refused())


def test_a_node_whose_samples_are_put_back_takes_part_again(wards, tmp_path):
    run = wards(rounds=3)
    former = (tmp_path / "data" / "1.npz").read_bytes()
    overwrite = overwritten(tmp_path, noise)
    first = after_round(0, overwrite)
    second = after_round(1, lambda: (tmp_path / "data" / "1.npz").write_bytes(former))
    run.transport.tamper = lambda request, reply: (first(request, reply), second(request, reply))[0]
    assert [row["contributors"] for row in run.trained().history] == [[0, 1, 2], [0, 2], [0, 1, 2]]


def test_a_node_that_comes_back_with_other_pictures_is_refused_at_its_greeting(wards, tmp_path):
    run = wards(rounds=2)
    overwrite = overwritten(tmp_path, noise)

    def act():
        overwrite()
        run.transport.incarnations[51] += 1

    run.transport.tamper = after_round(0, act)
    far = run.trained()
    refused = [event for event in run.events if event["event"] == "refused node"]
    assert [(event["node"], event["client"]) for event in refused] == [("51", 1)]
    assert refused[0]["reason"] == "client 1 holds other samples than when the run began"
    assert far.history[1]["contributors"] == [0, 2]


def test_a_run_does_not_go_on_with_other_samples(wards, tmp_path):
    run = wards(rounds=2)
    stopped(run)
    former = (tmp_path / "data" / "1.npz").read_bytes()
    overwritten(tmp_path, noise)()
    with pytest.raises(RunFailed, match=r"no node for client\(s\) 1 of 3. Node 51 was refused: client 1 holds other "):
        run.setup()
    (tmp_path / "data" / "1.npz").write_bytes(former)
    directory = opened(run, resume=True)
    assert digest(run.trained(directory)) == digest(together([ward(k) for k in range(3)], run.config))
    directory.close()


def test_a_run_of_an_earlier_version_goes_on_and_records_the_digests(wards):
    run = wards(rounds=2)
    stopped(run)
    path = run.folder / "run" / "deployment.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({"token": stored["token"]}))
    history = run.folder / "run" / "history.jsonl"
    rows = [json.loads(line) for line in history.read_text().splitlines()]
    history.write_text(
        "".join(json.dumps({k: v for k, v in row.items() if k != "contributors"}) + "\n" for row in rows)
    )
    (run.folder / "run" / "checkpoints" / "journal.jsonl").unlink(missing_ok=True)
    directory = opened(run, resume=True)
    far = run.trained(directory)
    directory.close()
    assert ["contributors" in row for row in far.history] == [False, True]
    assert json.loads(path.read_text()) == stored


def test_a_node_that_lost_its_salt_takes_part_and_is_named(wards, tmp_path):
    run = wards(rounds=2)

    def act():
        shutil.rmtree(tmp_path / "n1")
        run.transport.incarnations[51] += 1

    run.transport.tamper = after_round(0, act)
    far = run.trained()
    assert run.events == [{"event": "new salt", "node": "51", "client": 1}]
    assert digest(far) == digest(together([ward(k) for k in range(3)], run.config))


def test_other_runs_and_processes_see_the_same_digest(wards, tmp_path):
    run = wards()
    run.setup()
    asked = run.transport.asked[0]
    node = run.transport.there[50]
    first = node.answer("hello", asked.facts, {})[0]["clients"]["0"]["salted_digest"]
    _node_setup.node_setup.cache_clear()
    _node_setup.samples_digest.cache_clear()
    assert node.answer("hello", asked.facts, {})[0]["clients"]["0"]["salted_digest"] == first
    elsewhere = replace(node, folder=tmp_path / "elsewhere")
    other = elsewhere.answer("hello", asked.facts, {})[0]["clients"]["0"]["salted_digest"]
    assert not set(first.split("-")) & set(other.split("-"))


def test_the_salt_stays_on_the_node_for_its_user_alone(wards, tmp_path):
    run = wards(rounds=1)
    directory = opened(run, resume=False)
    run.trained(directory)
    directory.close()
    salts = [tmp_path / f"n{k}" / "salt" for k in range(3)]
    assert {stat.S_IMODE(salt.stat().st_mode) for salt in salts} == {0o600}
    assert len({salt.read_bytes() for salt in salts}) == 3
    known = "".join(path.read_text() for path in (run.folder / "run").glob("*.json*"))
    contents = own_dataset(str(tmp_path / "data" / "0.npz"), 10).digest()
    assert not any(salt.read_bytes().hex() in known for salt in salts)
    assert contents not in known
    record = json.loads((run.folder / "run" / "deployment.json").read_text())
    assert all(len(record["clients"][client]["salted_digest"]) == 81 for client in "012")


def test_a_salt_that_was_cut_is_refused(tmp_path):
    assert salted_digest(tmp_path, "x") == salted_digest(tmp_path, "x") != salted_digest(tmp_path, "y")
    Path(tmp_path / "salt").write_bytes(b"")
    with pytest.raises(RunFailed, match=r"has 0 bytes; expected 32\. Put the file back"):
        salted_digest(tmp_path, "x")


def test_samples_of_a_function_are_those_that_a_process_read_once(tmp_path):
    """A process that lives long trains on what it has read, and its digest says so."""
    files = saved(tmp_path / "data", [ward(k) for k in range(3)])
    (tmp_path / "once_ward.py").write_text(
        "import numpy as np\n"
        "def samples():\n"
        f"    with np.load({files[1]!r}) as file:\n"
        "        return tuple(file[name] for name in ('x_train', 'y_train', 'x_test', 'y_test'))\n"
    )
    run = apart(
        tmp_path,
        [files[0], f"{tmp_path / 'once_ward.py'}:samples", files[2]],
        config=config_of("fedavg", rounds=2, **CHANGES),
    )
    setup = run.setup()
    overwritten(tmp_path, noise)()
    assert digest(trained(setup)) == digest(together([ward(k) for k in range(3)], run.config))
    assert run.events == []


def test_pictures_that_change_under_a_new_salt_are_seen(wards, tmp_path):
    """The salt is lost after the first round, the pictures change after the second."""
    run = wards(rounds=4)
    overwrite = overwritten(tmp_path, noise)

    def lose():
        shutil.rmtree(tmp_path / "n1")
        run.transport.incarnations[51] += 1

    def change():
        overwrite()
        run.transport.incarnations[51] += 1

    first, second = after_round(0, lose), after_round(1, change)
    run.transport.tamper = lambda request, reply: (first(request, reply), second(request, reply))[0]
    assert [row["contributors"] for row in run.trained().history] == [[0, 1, 2], [0, 1, 2], [0, 2], [0, 2]]
    told = [
        (event["event"], event["client"])
        for event in run.events
        if "node" in event["event"] or "salt" in event["event"]
    ]
    assert told[:2] == [("new salt", 1), ("refused node", 1)]
