"""`fedblade watch` as a process: in a pipe, in a terminal, on a page, stopped by Ctrl-C."""

import fcntl
import http.client
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import tty

import pytest

from fedblade.results import read_runs


@pytest.fixture
def finished(cli, small, tmp_path):
    cli("run", *small, "--set", "method=fedavg", "--out", "mine").done()
    return tmp_path / "mine"


def state(folder):
    return {str(path): path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def start(folder, *argv, **streams):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TERM": "xterm-256color"}
    environment = {key: value for key, value in environment.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = [sys.executable, "-m", "fedblade", "watch", *map(str, argv)]
    return subprocess.Popen(command, cwd=folder, env=environment, **streams)


class Terminal:
    """A terminal of 80 columns and 24 lines with the command in it."""

    def __init__(self, folder, *argv):
        self.master, inner = pty.openpty()
        tty.setraw(inner)
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = start(folder, *argv, stdin=inner, stdout=inner, stderr=inner)
        os.close(inner)
        self.text = ""

    def read_until(self, wanted):
        until = time.monotonic() + 30
        while wanted not in self.text:
            assert time.monotonic() < until, (wanted, self.text)
            self._read()

    def end(self):
        """Exit status and everything that was shown."""
        while self._read():
            pass
        os.close(self.master)
        return self.process.wait(timeout=10), self.text

    def _read(self):
        if not select.select([self.master], [], [], 10)[0]:
            return False
        try:
            found = os.read(self.master, 65536)
        except OSError:
            return False
        self.text += found.decode(errors="replace")
        return bool(found)


@pytest.mark.parametrize("columns", ["60", "80", "140"])
def test_in_a_pipe_the_state_is_printed_once(cli, finished, columns):
    before = state(finished)
    text = cli("watch", "mine", COLUMNS=columns).done().out
    assert state(finished) == before
    assert re.search(r"^fedavg on digits .*finished$", text, re.MULTILINE)
    assert re.search(r"^round 3 of 3 ━+ 100 %$", text, re.MULTILINE)
    (run,) = read_runs([finished])
    assert f"all three {run.last10_accuracy:.2f}" in text
    assert max(map(len, text.splitlines())) <= int(columns)
    assert "\x1b" not in text


def test_a_folder_of_runs_in_a_pipe(cli, small, tmp_path):
    cli("compare", *small, "--methods", "fedavg,fedetf", "--seeds", "1", "--out", "both").done()
    text = cli("watch", "both").done().out
    assert text.startswith("2 runs")
    assert re.search(r"fedavg-seed1 +3/3 ", text)
    assert re.search(r"▸ fedetf-seed1 +3/3 ", text)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["gone"], "'gone' does not exist"),
        (["."], "holds no run"),
        (["gone", "--web"], "'gone' does not exist"),
        ([".", "--port", "8000"], "Add --web"),
        ([".", "--web", "--port", "70000"], "70000"),
        ([".", "--web", "--port", "x"], "'x'"),
    ],
)
def test_mistakes(cli, argv, said):
    assert said in cli("watch", *argv).mistake()


def test_a_taken_port_is_named(cli, tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} cannot be used" in cli("watch", ".", "--web", "--port", port).mistake()


def test_a_terminal_follows_a_run_that_is_still_to_start(cli, small, tmp_path):
    (tmp_path / "mine").mkdir()
    terminal = Terminal(tmp_path, "mine")
    terminal.read_until("waiting for a run")
    cli("run", *small, "--set", "method=fedavg", "--out", "mine").done()
    status, text = terminal.end()
    assert status == 0
    last = text.rpartition("\x1b[?1049l")[2]
    assert "round 3 of 3" in last
    assert "finished" in last


def test_ctrl_c_leaves_quietly(tmp_path, finished):
    (finished / "summary.json").unlink()
    terminal = Terminal(tmp_path, "mine")
    terminal.read_until("in progress")
    terminal.process.send_signal(signal.SIGINT)
    status, text = terminal.end()
    assert status == 0
    assert re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.rpartition("\x1b[?1049l")[2]).strip() == ""


def test_the_page_is_served_until_ctrl_c_and_nothing_is_written(tmp_path, finished):
    before = state(finished)
    process = start(tmp_path, "mine", "--web", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "for this machine only" in process.stdout.readline()
    address = process.stdout.readline().strip()
    port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", address)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/")
    reply = connection.getresponse()
    assert reply.status == 200
    assert "fedavg on digits" in reply.read().decode()
    connection.close()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 0
    assert state(finished) == before
