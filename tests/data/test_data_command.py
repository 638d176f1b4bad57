"""`fedblade data` as a function; the command line itself is tested in tests/cli."""

import warnings

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from support.made_files import cifar10_records, save_cifar10_binary

with warnings.catch_warnings():
    # The pinned typer uses a name that the pinned click announces to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from fedblade.cli._data import data


@pytest.fixture
def say(capsys):
    def run(name=None, *, download=False):
        data(name, download)
        return capsys.readouterr().out

    return run


def state(listing, name):
    (line,) = (each for each in listing.splitlines() if each.split()[0] == name)
    return line.split()[1]


def test_the_list_names_every_data_set_and_its_state(say, tmp_path, monkeypatch):
    before = say()
    assert [line.split()[0] for line in before.splitlines()[:-1]] == datasets.names()
    assert state(before, "cifar10") == "missing"
    assert state(before, "digits") == "embedded"
    assert state(before, "image_folder") == "yours"
    save_cifar10_binary(tmp_path / "cifar10")
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path))
    assert state(say(), "cifar10") == "found"
    say("cifar10")
    assert state(say(), "cifar10") == "cached"
    monkeypatch.delenv("FEDBLADE_DATA")
    assert state(say(), "cifar10") == "cached"


def test_a_name_prepares_the_data_set(say, tmp_path, monkeypatch, cache):
    save_cifar10_binary(tmp_path / "cifar10")
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path))
    assert "cifar10: 20 training and 4 test samples of 3×32×32, 10 classes" in say("cifar10")
    assert len(list(cache.glob("decoded/cifar10-*"))) == 1
    assert "digits: 1,348 training" in say("digits")


def test_every_block_is_checked(say, tmp_path, monkeypatch, caplog, cache):
    from fedblade.data import _cache

    monkeypatch.setattr(_cache, "_CHECKED_BLOCKS", 1)
    folder = tmp_path / "cifar10"
    save_cifar10_binary(folder)
    for batch in range(1, 6):
        (folder / f"data_batch_{batch}.bin").write_bytes(cifar10_records(300, seed=batch)[0])
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path))
    say("cifar10")
    (inputs,) = cache.glob("decoded/cifar10-*/train-inputs.bin")
    damaged = bytearray(inputs.read_bytes())
    damaged[(1 << 20) + 5] ^= 1
    inputs.write_bytes(damaged)
    datasets.get("cifar10").make()
    assert "damaged" not in caplog.text
    say("cifar10")
    assert "damaged" in caplog.text


def test_mistakes_are_explained(say):
    with pytest.raises(Misconfigured, match=r"unknown dataset 'cifar11'. Did you mean 'cifar10'"):
        say("cifar11")
    with pytest.raises(Misconfigured, match=r"needs the name of a data set"):
        say(download=True)
    with pytest.raises(Misconfigured, match=r"fedblade run --set dataset=arrays --set dataset.path=PATH"):
        say("arrays")
    with pytest.raises(Misconfigured, match=r"github.com/owkin/FLamby"):
        say("fed_isic2019")
