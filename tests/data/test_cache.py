"""The decoded copy: mapped, whole or absent, and worth more than its files."""

import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.data import _cache, _digest, _load
from fedblade.data._source import Block, in_order
from fedblade.data._store import ArrayFile
from fedblade.data.cifar import cifar10
from support.made_files import cifar10_records, pixels, save_cifar10_binary, save_table


@pytest.fixture
def source(tmp_path):
    save_cifar10_binary(tmp_path / "files")
    return tmp_path / "files"


def copies(cache):
    return sorted(cache.glob("decoded/cifar10-*"))


def leftovers(cache):
    return [path for path in cache.glob("decoded/*") if path.name.startswith(".")]


def test_a_second_start_maps_the_copy_and_decodes_nothing(source, cache, monkeypatch):
    first = cifar10(str(source))
    monkeypatch.setattr(_cache, "_build", lambda *_: pytest.fail("decoded twice"))
    second = cifar10(str(source))
    np.testing.assert_array_equal(first.train.inputs, second.train.inputs)
    assert isinstance(second.train.inputs.base, np.memmap)
    assert second.fingerprint == first.digest()
    assert copies(cache)[0].name.endswith(second.fingerprint)


def test_writing_to_a_mapped_array_does_not_reach_the_file(source):
    first = cifar10(str(source))
    before = first.train.inputs.copy()
    first.train.inputs[:] = 7
    np.testing.assert_array_equal(cifar10(str(source)).train.inputs, before)


def test_the_key_follows_the_content_not_the_place(source, cache, tmp_path):
    first = cifar10(str(source))
    moved = source.rename(tmp_path / "moved")
    assert cifar10(str(moved)).fingerprint == first.fingerprint
    assert len(copies(cache)) == 1
    data = bytearray((moved / "data_batch_5.bin").read_bytes())
    data[-1] ^= 1
    (moved / "data_batch_5.bin").write_bytes(data)
    changed = cifar10(str(moved))
    assert changed.fingerprint != first.fingerprint
    assert (changed.train.inputs != first.train.inputs).sum() == 1


def test_files_are_hashed_again_only_if_something_about_them_changed(source, monkeypatch):
    monkeypatch.setattr(_digest, "SETTLED_SECONDS", -1.0)
    first = cifar10(str(source))
    hashed = []
    real = _digest.hash_file
    monkeypatch.setattr(_digest, "hash_file", lambda file: hashed.append(file.name) or real(file))
    assert cifar10(str(source)).fingerprint == first.fingerprint
    assert hashed == []
    (source / "test_batch.bin").write_bytes(cifar10_records(4, seed=9)[0])
    assert cifar10(str(source)).fingerprint != first.fingerprint
    assert "test_batch.bin" in hashed


def test_files_changed_a_moment_ago_are_not_trusted(source, monkeypatch):
    cifar10(str(source))
    hashed = []
    real = _digest.hash_file
    monkeypatch.setattr(_digest, "hash_file", lambda file: hashed.append(file.name) or real(file))
    cifar10(str(source))
    assert len(hashed) == 6


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)


def swap_shape(path):
    path.write_text(path.read_text().replace('"shape": [20, 3, 32, 32]', '"shape": [20, 3, 32, 33]'))


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("train-inputs.bin", cut),
        ("train-inputs.bin", flip),
        ("test-labels.bin", flip),
        ("meta.json", cut),
        ("meta.json", swap_shape),
        ("test-inputs.bin", lambda path: path.unlink()),
        ("meta.json", lambda path: path.unlink()),
    ],
)
def test_a_damaged_copy_is_noticed_and_made_again(source, cache, caplog, file, damage):
    before = cifar10(str(source)).train.inputs.copy()
    damage(copies(cache)[0] / file)
    np.testing.assert_array_equal(cifar10(str(source)).train.inputs, before)
    assert "damaged" in caplog.text
    assert len(copies(cache)) == 1
    assert leftovers(cache) == []


def test_large_copies_are_checked_in_places_and_whole_on_demand(tmp_path, monkeypatch):
    monkeypatch.setattr(ArrayFile, "BLOCK", 64)
    monkeypatch.setattr(_cache, "_BLOCK", 64)
    monkeypatch.setattr(_cache, "_CHECKED_BLOCKS", 4)
    data = np.arange(64 * 16, dtype=np.int64).astype(np.uint8).reshape(1, -1)
    file = ArrayFile(tmp_path / "a.bin")
    file.append(data)
    file.close()
    facts = file.facts()
    assert len(facts["crc32"]) == 16
    check = [tmp_path / "a.bin", facts["bytes"], facts["crc32"]]
    for block, noticed in ((0, True), (1, False), (4, True), (15, True)):
        flipped = bytearray(data.tobytes())
        flipped[64 * block + 3] ^= 1
        check[0].write_bytes(flipped)
        with pytest.raises(_cache.Damaged, match=f"near byte {64 * block}"):
            _cache._check(*check, True)
        if noticed:
            with pytest.raises(_cache.Damaged):
                _cache._check(*check, False)
        else:
            _cache._check(*check, False)


def test_checksums_do_not_depend_on_how_rows_arrive(tmp_path, monkeypatch):
    monkeypatch.setattr(ArrayFile, "BLOCK", 50)
    rows = np.random.default_rng(0).integers(0, 256, (40, 7), dtype=np.uint8)
    facts = []
    for cuts in ([], [1, 2, 30], list(range(1, 40))):
        file = ArrayFile(tmp_path / "a.bin")
        for piece in np.split(rows, cuts):
            file.append(piece)
        file.close()
        facts.append(file.facts())
        assert (tmp_path / "a.bin").read_bytes() == rows.tobytes()
    assert facts[0] == facts[1] == facts[2]
    assert facts[0]["shape"] == [40, 7]


def test_a_failed_decoding_leaves_nothing_behind(tmp_path, cache):
    save_table(tmp_path / "train.parquet", pixels(600, 32), np.arange(600) % 10)
    save_table(tmp_path / "test.parquet", pixels(2, 32), [0, 10])
    with pytest.raises(Misconfigured, match="row 1"):
        cifar10(str(tmp_path))
    assert list(cache.glob("decoded/*")) == []


def test_old_leftovers_of_killed_processes_are_swept(source, cache):
    import os

    for name, age in ((".cifar10-old.tmp", 48), (".cifar10-new.tmp", 1)):
        (cache / "decoded" / name).mkdir(parents=True)
        stamp = time.time() - age * 3600
        os.utime(cache / "decoded" / name, (stamp, stamp))
    cifar10(str(source))
    assert [path.name for path in leftovers(cache)] == [".cifar10-new.tmp"]


def test_of_two_builders_the_first_wins(source, cache, tmp_path):
    """A second builder finishes while the first is still decoding."""
    spec_source = _load.recognise(_load_spec(), source)
    folder = cache / "decoded" / "cifar10-abc"

    def slow(part):
        if part == "test":
            _cache.open_or_build(folder, "cifar10", spec_source, measure=False)
            (folder / "winner").touch()
        return spec_source.read(part)

    raced = replace(spec_source, read=slow)
    decoded = _cache.open_or_build(folder, "cifar10", raced, measure=False)
    assert (folder / "winner").exists()
    assert len(decoded.arrays["train-labels"]) == 20
    assert leftovers(cache) == []


def _load_spec():
    from fedblade.data.cifar import _CIFAR10

    return _CIFAR10


@pytest.mark.thorough
def test_two_processes_decode_at_once_without_harm(source, cache):
    code = (
        "import sys; from fedblade.data.cifar import cifar10; d = cifar10(sys.argv[1]);"
        "print(d.fingerprint, int(d.train.inputs.sum()))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(source)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert said[0] == said[1] != ""
    assert len(copies(cache)) == 1
    assert leftovers(cache) == []


def test_few_blocks_are_in_memory_at_a_time():
    lock, made, taken, most = threading.Lock(), 0, 0, 0

    def task():
        nonlocal made, most
        with lock:
            made += 1
            most = max(most, made - taken)
        return Block(np.full((1, 1), made), np.zeros(1, np.int64))

    for _ in in_order((task for _ in range(100)), workers=2):
        with lock:
            taken += 1
    assert made == 100
    assert most <= 6


def test_blocks_keep_their_order_whoever_finishes_first():
    def task(i):
        def run():
            time.sleep(0.002 * (i % 3 == 0))
            return Block(np.full((1, 1), i), np.zeros(1, np.int64))

        return run

    order = [int(block.inputs[0, 0]) for block in in_order((task(i) for i in range(30)), workers=3)]
    assert order == list(range(30))


def test_a_full_or_closed_disk_is_explained(source, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_cache, "_build", fails)
    with pytest.raises(Misconfigured, match=r"cannot write decoded data.*No space left.*XDG_CACHE_HOME"):
        cifar10(str(source))


def test_a_disk_that_keeps_damaging_copies_is_reported(source, monkeypatch):
    def damaged(*_, **__):
        raise _cache.Damaged("again")

    monkeypatch.setattr(_cache, "open_decoded", damaged)
    with pytest.raises(Misconfigured, match=r"damaged 3 times"):
        cifar10(str(source))
