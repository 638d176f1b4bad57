"""Standard streams that never fail, tried in processes whose output really is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import sys
from pathlib import Path
from fedblade.core.standard_streams import lost_output, survive_lost_output
survive_lost_output()
"""
MANY_LINES = "for number in range(50_000): print(number)\n"
SAY_WHY = "print('lost:', lost_output(), file=sys.stderr)\n"


def python(code, *options, **streams):
    """Run code in a process that has made its streams safe; stderr is piped unless it is given."""
    command = [sys.executable, *options, "-c", START + code]
    return subprocess.Popen(command, **{"stderr": subprocess.PIPE, "text": True} | streams)


@pytest.mark.parametrize("options", [(), ("-u",)], ids=["buffered", "unbuffered"])
def test_a_reader_that_goes_away_ends_nothing(options):
    process = python(MANY_LINES + SAY_WHY, *options, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "0\n"
    process.stdout.close()
    assert process.stderr.read() == "lost: [Errno 32] Broken pipe\n"
    process.stderr.close()
    assert process.wait(timeout=30) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_ends_nothing():
    with Path("/dev/full").open("w") as full:
        process = python(MANY_LINES + SAY_WHY, stdout=full)
        assert process.communicate(timeout=30)[1] == "lost: [Errno 28] No space left on device\n"
        both = python(MANY_LINES + "print('also lost', file=sys.stderr)\n", stdout=full, stderr=full)
    assert (process.returncode, both.wait(timeout=30)) == (0, 0)


def test_output_that_is_read_is_not_lost():
    out, err = python(MANY_LINES + SAY_WHY, stdout=subprocess.PIPE).communicate(timeout=30)
    assert out.splitlines() == [str(number) for number in range(50_000)]
    assert err == "lost: None\n"


def test_prints_of_a_closed_stream_do_not_reach_the_next_file(tmp_path):
    code = "file = Path('file').open('w')\nprint('printed', flush=True)\nfile.write('written')\nfile.close()\n"
    command = [sys.executable, "-c", START + code]
    done = subprocess.run(["sh", "-c", '"$@" >&- 2>&- <&-', "sh", *command], cwd=tmp_path, timeout=30, check=False)
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == "written"


def test_a_pipe_that_takes_nothing_at_the_moment_is_waited_for():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    process = python(MANY_LINES + SAY_WHY, stdout=writer)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert len(pipe.readlines()) == 50_000
    assert process.communicate(timeout=30)[1] == "lost: None\n"


def test_names_that_are_no_text_are_printed_as_they_are_and_other_characters_are_escaped():
    code = "print('x\\udcff \\ud800 ✓')\n"
    environment = os.environ | {"PYTHONIOENCODING": "ascii:strict"}
    process = python(code, stdout=subprocess.PIPE, text=False, env=environment)
    assert process.communicate(timeout=30) == (b"x\xff \\ud800 \\u2713\n", b"")
    utf8 = python("print('x\\udcff ✓')\n", stdout=subprocess.PIPE, text=False, env=os.environ | {"PYTHONUTF8": "1"})
    assert utf8.communicate(timeout=30)[0] == b"x\xff \xe2\x9c\x93\n"
