import errno
import os
import stat
from pathlib import Path

import pytest

from fedblade.core.files import cannot_write, free_place, write_atomic, write_once


def test_text_and_bytes_are_written_whole(tmp_path):
    write_atomic(tmp_path / "a", "grün")
    write_atomic(tmp_path / "b", b"\x00\xff")
    assert (tmp_path / "a").read_bytes() == "grün".encode()
    assert (tmp_path / "b").read_bytes() == b"\x00\xff"


def test_a_file_is_replaced(tmp_path):
    write_atomic(tmp_path / "a", "old")
    write_atomic(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def fail(*_args, **_kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stage", ["os.fsync", "pathlib.Path.replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, stage):
    write_atomic(tmp_path / "a", "old")
    with monkeypatch.context() as patch:
        patch.setattr(stage, fail)
        with pytest.raises(OSError, match="No space"):
            write_atomic(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_an_interrupt_leaves_nothing_either(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_atomic(tmp_path / "a", "new")
    assert list(tmp_path.iterdir()) == []


def test_data_reach_the_disk_before_the_name_does(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (calls.append("replace"), replace(self, to))[1])
    write_atomic(tmp_path / "a", "x")
    assert calls == ["fsync", "replace", "fsync"]


def test_permissions_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", "x")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "No space left on device. Free some space, then go on with --resume"),
        (errno.EDQUOT, "Free some space, or ask for a larger quota, then go on"),
        (errno.EACCES, "Permission denied. Check the permissions of the folder, then go on"),
        (errno.EROFS, "Read-only file system. Make the disk writable, or choose another one, then go on"),
        (errno.ENAMETOOLONG, "File name too long. Choose a shorter name, then go on"),
        (errno.ENOENT, "No such file or directory. Put the folder back if it was moved or removed, then go on"),
        (errno.EIO, "Check the disk, then go on"),
    ],
)
def test_what_to_do_follows_from_why_a_file_could_not_be_written(number, advice):
    message = str(cannot_write(Path("run/file"), OSError(number, os.strerror(number))))
    assert message.startswith("cannot write 'run/file': ")
    assert advice in message


def test_what_is_there_is_not_written_once_more(tmp_path):
    for content in ("first", "second"):
        write_once(tmp_path / "salt", content, 0o600)
    assert (tmp_path / "salt").read_text() == "first"
    assert (tmp_path / "salt").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["salt"]


def test_a_free_place_has_the_first_free_number(tmp_path):
    for name in ("run-1", "run-2", "run-4"):
        (tmp_path / name).touch()
    assert [free_place(tmp_path / "run", first).name for first in (1, 4)] == ["run-3", "run-5"]
