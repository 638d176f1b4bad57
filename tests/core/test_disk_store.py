"""Client states on disk: few files, nothing lost, nothing foreign read, and no more room than the states need."""

import os
import random
import resource
import shutil

import pytest
import torch

from fedblade.core.disk_store import DiskStore
from fedblade.core.errors import CorruptFile, RunFailed
from fedblade.core.state import flatten
from fedblade.core.tensorfile import encode_tensors


def state(value, size=2):
    return {"control": {"body.weight": torch.full((size,), float(value))}, "_momentum": {"scale": torch.tensor(value)}}


def value_of(found):
    return None if found is None else found["control"]["body.weight"][0].item()


def save(store, round_, clients, value=None):
    """A round and its checkpoint: returns what the checkpoint would hold."""
    store.put_all(round_, {client: state(float(round_ if value is None else value)) for client in clients})
    return store.contents(round_ + 1)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("flushed", [True, False])
def test_the_newest_state_before_a_round_comes_back(tmp_path, flushed):
    store = DiskStore(tmp_path)
    for round_ in (0, 3, 7):
        store.put(0, round_, state(float(round_)))
        if flushed:
            store.flush()
    assert [value_of(store.get(0, before)) for before in (0, 1, 3, 4, 7, 8, 99)] == [None, 0, 0, 3, 3, 7, 7]


def test_states_survive_a_new_process_which_does_a_round_again(tmp_path):
    save(DiskStore(tmp_path), 2, [5, 6], value=4.0)
    again = DiskStore(tmp_path)
    assert [value_of(again.get(5, 3)), value_of(again.get(5, 2))] == [4.0, None]
    again.put(5, 2, state(7.0))
    assert [value_of(again.get(client, 3)) for client in (5, 6)] == [7.0, None]
    again.flush()
    assert value_of(DiskStore(tmp_path).get(5, 3)) == 7.0


def test_states_of_a_megabyte_are_read_and_written_by_threads(tmp_path):
    store = DiskStore(tmp_path)
    store.put_all(0, {client: state(float(client), size=2**18) for client in range(6)})
    assert [value_of(found) for found in store.get_all(range(6), 1)] == [0, 1, 2, 3, 4, 5]


def test_a_round_makes_one_file_with_two_waits_for_the_disk(tmp_path, monkeypatch):
    store, calls, fsync = DiskStore(tmp_path), [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append(handle), fsync(handle)))
    for group in range(5):
        store.put_all(0, {client: state(1.0) for client in range(20 * group, 20 * group + 20)})
    contents = store.contents(1)
    assert files(tmp_path) == list(contents) == ["000000-0-0.states"]
    assert len(calls) == 2


def test_what_kept_checkpoints_need_is_kept_and_the_rest_is_removed(tmp_path):
    store = DiskStore(tmp_path)
    saved = {round_ + 1: save(store, round_, [0]) for round_ in (0, 1, 4, 6)}
    assert len(files(tmp_path)) == 4
    store.forget_before(5)
    assert [value_of(DiskStore(tmp_path).get(0, before)) for before in (2, 5, 7)] == [None, 4.0, 6.0]
    assert files(tmp_path) == sorted({**saved[5], **saved[7]})


@pytest.mark.parametrize(("population", "cohort", "rounds"), [(200, 10, 200), (60, 20, 40), (30, 30, 20)])
def test_the_files_need_little_more_room_than_the_states(tmp_path, population, cohort, rounds):
    """The two newest checkpoints are kept, as by default; the files are counted when there are most of them."""
    draw, store, newest, room = random.Random(0), DiskStore(tmp_path), {}, []
    one = len(encode_tensors(flatten(state(0.0, size=100)))[0])
    for round_ in range(rounds):
        clients = draw.sample(range(population), cohort)
        found = store.get_all(clients, round_)
        assert [value_of(each) for each in found] == [newest.get(client) for client in clients]
        store.put_all(round_, {client: state(float(round_), size=100) for client in clients})
        replaced = newest.keys() & set(clients)
        newest |= dict.fromkeys(clients, float(round_))
        store.contents(round_ + 1)
        needed = len(newest) + len(replaced)
        room.append(sum(path.stat().st_size for path in tmp_path.iterdir()) / (needed * one))
        store.forget_before(round_)
        assert len(files(tmp_path)) < 32
    assert max(room) < 3


def test_a_resumed_run_reads_exactly_the_files_of_its_checkpoint(tmp_path):
    """A later file is not read, and goes when no kept checkpoint is older than the one that was used."""
    store = DiskStore(tmp_path)
    save(store, 0, [1, 2])
    contents = save(store, 1, [2])
    save(store, 2, [1, 3])
    (tmp_path / "000003-0-0.states.tmp").write_bytes(b"half")
    for stray in ("notes.txt", "000001-0-0 (copy).states", "000009.safetensors"):
        (tmp_path / stray).write_text("mine")
    (tmp_path / "000017-0-0.states").mkdir()
    again = DiskStore(tmp_path)
    again.check(2, contents)
    assert [value_of(again.get(client, 99)) for client in (1, 2, 3)] == [0.0, 1.0, None]
    assert "000002-0-0.states" in files(tmp_path)
    assert "000003-0-0.states.tmp" not in files(tmp_path)
    again.forget_before(1)
    assert "000002-0-0.states" in files(tmp_path)
    again.forget_before(2)
    strays = {"notes.txt", "000001-0-0 (copy).states", "000009.safetensors", "000017-0-0.states"}
    assert set(files(tmp_path)) == {*contents, *strays}


def test_a_resumed_run_writes_the_files_of_an_undisturbed_run(tmp_path):
    """However small files were put together meanwhile."""
    draw = random.Random(1)
    cohorts = [draw.sample(range(40), 4) for _ in range(30)]

    def rounds(store, first, end):
        contents = []
        for round_ in range(first, end):
            contents.append(save(store, round_, cohorts[round_]))
            store.forget_before(round_)
        return contents

    whole = rounds(DiskStore(tmp_path / "whole"), 0, 30)
    store = DiskStore(tmp_path / "cut")
    contents = rounds(store, 0, 17)
    save(store, 17, cohorts[17])
    again = DiskStore(tmp_path / "cut")
    again.check(17, contents[-1])
    assert rounds(again, 17, 30) == whole[17:]
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_an_older_kept_checkpoint_stays_usable(tmp_path):
    """Small files have been put together since; the checkpoint of round 8 needs them as they were."""
    store = DiskStore(tmp_path)
    saved = {round_ + 1: save(store, round_, [round_, round_ + 1]) for round_ in range(12)}
    store.forget_before(8)
    for round_ in (12, 8):
        again = DiskStore(tmp_path)
        again.check(round_, saved[round_])
        expected = [float(min(client, round_ - 1)) if client <= round_ else None for client in range(13)]
        assert [value_of(found) for found in again.get_all(range(13), round_)] == expected


def test_a_round_that_was_stopped_does_not_count_for_the_checkpoint_before(tmp_path):
    store = DiskStore(tmp_path)
    save(store, 0, [1, 2])
    store.put_all(1, {1: state(9.0), 2: state(9.0)})
    contents = store.contents(1)
    again = DiskStore(tmp_path)
    again.check(1, contents)
    save(again, 1, [3])
    assert [value_of(again.get(client, 2)) for client in (1, 2, 3)] == [0.0, 0.0, 1.0]


def test_a_file_that_is_gone_cut_or_changed_is_refused(tmp_path):
    store = DiskStore(tmp_path / "a")
    contents = save(store, 0, [1, 2])
    (path,) = (tmp_path / "a").iterdir()
    content = path.read_bytes()
    for end in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(CorruptFile, match=r"000000-0-0.states' .*the checkpoint of round 1"):
            DiskStore(tmp_path / "a").check(1, contents)
    path.write_bytes(content)
    flip(path, -60)
    with pytest.raises(CorruptFile, match="does not match its digest"):
        DiskStore(tmp_path / "a").check(1, contents)
    path.unlink()
    with pytest.raises(CorruptFile, match=r"is gone, and the checkpoint of round 1 needs its client states$"):
        DiskStore(tmp_path / "a").check(1, contents)
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(CorruptFile, match="is gone"):
        DiskStore(tmp_path / "a").check(1, contents)


def test_the_file_of_another_run_is_refused(tmp_path):
    contents = save(DiskStore(tmp_path / "a"), 0, [1, 2])
    assert save(DiskStore(tmp_path / "b"), 0, [1, 2], value=5.0).keys() == contents.keys()
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    with pytest.raises(CorruptFile, match="holds other client states"):
        DiskStore(tmp_path / "a").check(1, contents)


def test_no_flipped_bit_of_a_state_goes_unnoticed(tmp_path):
    store = DiskStore(tmp_path)
    contents = save(store, 0, [1])
    (path,) = tmp_path.iterdir()
    content, values, errors = path.read_bytes(), [], []
    for place in range(0, len(encode_tensors(flatten(state(0.0)))[0]), 7):
        flip(path, place)
        again = DiskStore(tmp_path)
        again.check(1, contents)
        try:
            values.append(value_of(again.get(1, 1)))
        except CorruptFile as error:
            errors.append(str(error))
        path.write_bytes(content)
    # Some bytes of the header change nothing, such as a space.
    assert set(values) <= {0.0}
    assert all("the state of client 1 is lost" in error and "start the run again" in error for error in errors)
    assert len(errors) > 3 * len(values)


def test_a_state_that_was_there_is_never_taken_for_none(tmp_path):
    store = DiskStore(tmp_path)
    save(store, 0, [1])
    (tmp_path / "000000-0-0.states").unlink()
    with pytest.raises(CorruptFile, match="the state of client 1 is lost"):
        store.get(1, 1)


def test_another_folder_in_the_place_of_the_runs_ends_the_run(tmp_path):
    store = DiskStore(tmp_path / "clients")
    store.put(1, 0, state(1.0))
    (tmp_path / "clients").rename(tmp_path / "moved")
    DiskStore(tmp_path / "clients").put(1, 0, state(1.0, size=9))
    with pytest.raises(CorruptFile, match="changed by another program"):
        store.put(2, 0, state(1.0))


def test_a_full_disk_ends_the_run_and_leaves_nothing_that_is_trusted(tmp_path):
    store = DiskStore(tmp_path)
    contents = save(store, 0, range(4))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        store.put_all(1, {client: state(1.0) for client in range(50)})
        for _ in range(2):
            with pytest.raises(RunFailed, match="cannot write"):
                store.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files(tmp_path) == list(contents)
    for call in (lambda: store.contents(2), lambda: store.get(1, 2), lambda: store.put(1, 1, state(1.0))):
        with pytest.raises(RunFailed, match="cannot write"):
            call()


def test_two_processes_share_a_folder_and_the_first_clears_it(tmp_path):
    """Both see every state, also when files were put together and when a client moves from one to the other."""
    stores = [DiskStore(tmp_path, writer=number) for number in (0, 1)]
    draw, newest = random.Random(3), {}
    for round_ in range(40):
        clients = draw.sample(range(20), 6)
        for store, share in zip(stores, (clients[:3], clients[3:]), strict=True):
            assert [value_of(each) for each in store.get_all(share, round_)] == [newest.get(c) for c in share]
            store.put_all(round_, {client: state(float(round_)) for client in share})
        contents = [store.contents(round_ + 1) for store in stores]
        for store, other in zip(stores, reversed(contents), strict=True):
            store.add_files(other)
        newest |= dict.fromkeys(clients, float(round_))
        for store in reversed(stores):
            store.forget_before(round_)
    assert len(files(tmp_path)) < 24
    again = DiskStore(tmp_path)
    again.check(40, stores[0].contents(40))
    assert [value_of(each) for each in again.get_all(range(20), 40)] == [newest[client] for client in range(20)]
