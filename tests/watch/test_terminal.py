"""Following a run on a terminal until it ends; printing once elsewhere."""

import io
import threading
import time

import pytest
from rich.console import Console

from fedblade.core.errors import Misconfigured
from fedblade.watch import show


def terminal(width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=24, color_system=None, _environ={})


def plain(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, _environ={})


def test_a_growing_history_is_followed_to_its_end(run):
    console = terminal()
    watching = threading.Thread(target=show, args=(run.path, console), kwargs={"poll_seconds": 0.02}, daemon=True)
    watching.start()

    def wait_for(text: str) -> None:
        until = time.monotonic() + 5
        while text not in console.file.getvalue():
            assert time.monotonic() < until, text
            time.sleep(0.01)

    wait_for("waiting for the first round")
    now = time.time()
    run.rounds(1, at=now - 3, tail='{"round": 2, "te')
    wait_for("round 1 of 60")
    run.rounds(2, at=now - 2)
    wait_for("round 2 of 60")
    run.write("history.jsonl", "not a round\n{}\n", at=now - 1.5)
    wait_for("Left out, because it cannot be read: lines 1, 2 of")
    run.rounds(1, at=now - 1)
    wait_for("round 1 of 60")
    at = run.rounds(3, at=now)
    wait_for("round 3 of 60")
    assert watching.is_alive()
    run.end("finished", 3, at=at)
    watching.join(timeout=5)
    assert not watching.is_alive()
    text = console.file.getvalue()
    assert text.index("\x1b[?1049h") < text.rindex("\x1b[?1049l")
    assert "finished" in text[text.rindex("\x1b[?1049l") :]


@pytest.mark.parametrize("status", ["finished", "interrupted", "failed"])
def test_a_run_that_has_ended_is_shown_once_without_taking_the_screen(run, status):
    run.end(status, 5, at=run.rounds(5))
    console = terminal()
    show(run.path, console)
    assert "1049" not in console.file.getvalue()
    assert status in console.file.getvalue()


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("width", [60, 80, 140])
def test_where_there_is_no_terminal_the_state_is_printed_once(run, width, ended, untouched):
    at = run.rounds(5)
    if ended:
        run.end("finished", 5, at=at)
    console = plain(width)
    with untouched:
        show(run.path, console)
    text = console.file.getvalue()
    assert "\x1b" not in text
    assert text.count("round 5 of 60") == 1
    assert max(map(len, text.splitlines())) <= width


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_text(run):
    run.rounds(5)
    console = Console(file=io.StringIO(), force_terminal=True, width=80, _environ={"TERM": "dumb"})
    show(run.path, console)
    assert "\x1b" not in console.file.getvalue()


def test_paths_that_cannot_be_watched(tmp_path, run):
    for path, said in ((tmp_path / "gone", "does not exist"), (run.path / "config.toml", "is a file")):
        for console in (plain(), terminal()):
            with pytest.raises(Misconfigured, match=said):
                show(path, console)


def test_a_folder_without_a_run_is_a_mistake_where_nobody_can_wait(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(Misconfigured, match="holds no run"):
        show(tmp_path / "empty", plain())
