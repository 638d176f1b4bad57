"""What the machine is asked about: cores and memory, with and without the limits of a container."""

import pytest

from fedblade.core import machine


@pytest.fixture
def group(tmp_path, monkeypatch):
    """Files of a container's limits."""
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    return lambda **files: [(tmp_path / name.replace("_", ".")).write_text(text) for name, text in files.items()]


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: set(range(8)), raising=False)


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)])
def test_a_containers_share_of_the_cores_counts(group, quota, cores):
    group(cpu_max=quota)
    assert machine.cores() == cores


def test_without_a_container_all_usable_cores_count(group):
    group()
    assert machine.cores() == 8


def test_a_containers_limit_of_memory_counts_without_cached_files(group):
    group()
    outside = machine.free_memory()
    group(memory_max="1000", memory_current="900", memory_stat="anon 500\ninactive_file 300")
    assert machine.free_memory() == 400
    group(memory_max="max")
    assert outside is None or machine.free_memory() > 400


def test_the_peak_grows_with_what_is_used():
    before = machine.peak_memory()
    block = bytearray(before + 2**26)
    assert machine.peak_memory() >= before + len(block) // 2
