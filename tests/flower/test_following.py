"""Following a run of Flower's, with a SuperLink that says what it is told to."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
from fedblade.core.errors import RunFailed
from fedblade.flower import following
from fedblade.flower.app_folder import AppFolder
from fedblade.runs import RunListener, load_config

Step = Callable[[], dict[str, Any]]


class Interrupted(BaseException):
    """Stands for a signal."""


class Link:
    """Answers from a list of steps; remembers what it was told."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps, self.settings, self.stopped = iter(steps), {}, []

    def __call__(self, _app: AppFolder) -> "Link":
        return self

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, app: Path, settings: Path) -> str:
        self.settings = settings.read_text()
        return "7"

    def run(self, number: str) -> dict[str, Any]:
        return next(self.steps)() | {"run-id": number}

    def stop(self, number: str) -> None:
        self.stopped.append(number)


class Heard(RunListener):
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.started, self.rounds, self.notes = -1, [], []

    def on_start(self, run, history) -> None:
        assert "engine flower" in run.description
        self.started = len(history)

    def on_round(self, record) -> None:
        self.rounds.append(record["round"])

    def on_note(self, text) -> None:
        self.notes.append(text)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch) -> None:
    monkeypatch.setattr(following, "_POLL_SECONDS", 0.0)


@pytest.fixture
def app(tmp_path):
    app = AppFolder(tmp_path / "app")
    app.local.mkdir(parents=True)
    return app


def going(*effects: Callable[[], object]) -> Step:
    def step() -> dict[str, Any]:
        for effect in effects:
            effect()
        return {"status": "running", "status-details": "N/A"}

    return step


def ended(sub: str = "completed", details: str = "N/A") -> Step:
    return lambda: {"status": f"finished:{sub}", "status-details": details}


def rounds(out: Path, *numbers: int) -> Callable[[], None]:
    def write() -> None:
        out.mkdir(exist_ok=True)
        with (out / "history.jsonl").open("a") as file:
            file.writelines(json.dumps({"round": number}) + "\n" for number in numbers)

    return write


def summary(out: Path, status: str) -> Callable[[], None]:
    return lambda: (out / "summary.json").write_text(json.dumps({"status": status, "rounds": 3}))


def follow(monkeypatch, app: AppFolder, out: Path, steps: list[Step], resume: bool = False):
    link, heard = Link(steps), Heard()
    monkeypatch.setattr(following, "SuperLink", link)
    return link, heard, lambda: following.follow(app, load_config(None, {})[0], out, heard, resume=resume)


def test_rounds_are_shown_once_and_the_summary_comes_back(monkeypatch, app, tmp_path):
    out = tmp_path / "my run"
    steps = [going(rounds(out, 1)), going(), going(rounds(out, 2, 3), summary(out, "finished")), ended()]
    link, heard, run = follow(monkeypatch, app, out, steps)
    assert run() == {"status": "finished", "rounds": 3}
    assert (heard.started, heard.rounds) == (0, [1, 2, 3])
    assert link.settings == f'run-dir = "{out}"\nresume = false\n'
    assert not link.stopped


def test_a_torn_last_line_is_shown_when_it_is_whole(monkeypatch, app, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    history = out / "history.jsonl"
    steps = [
        going(lambda: history.write_text('{"round": 1}\n{"rou')),
        going(lambda: history.write_text('{"round": 1}\n{"round": 2}\n'), summary(out, "finished")),
        ended(),
    ]
    _, heard, run = follow(monkeypatch, app, out, steps)
    run()
    assert heard.rounds == [1, 2]


def test_going_on_shows_new_rounds_only(monkeypatch, app, tmp_path):
    out = tmp_path / "out"
    rounds(out, 1, 2)()
    summary(out, "interrupted")()
    steps = [going(rounds(out, 3)), going(summary(out, "finished")), ended()]
    link, heard, run = follow(monkeypatch, app, out, steps, resume=True)
    run()
    assert (heard.started, heard.rounds) == (2, [3])
    assert link.settings.endswith("resume = true\n")


@pytest.mark.parametrize(
    ("sub", "status", "details", "said"),
    [
        ("failed", "failed", "ServerApp failed with exception: the disk is full.", "failed: the disk is full. To go"),
        ("failed", None, "N/A", "Flower says 'finished:failed'"),
        ("completed", "interrupted", "N/A", "does not say that it finished"),
        ("completed", None, "N/A", "does not say that it finished"),
        ("stopped", "finished", "N/A", "was stopped. To go on with it, add --resume"),
        ("failed", "finished", "N/A", "Flower says 'finished:failed'"),
    ],
)
def test_only_a_finished_run_is_one(monkeypatch, app, tmp_path, sub, status, details, said):
    out = tmp_path / "out"
    out.mkdir()
    effects = [] if status is None else [summary(out, status)]
    _, _, run = follow(monkeypatch, app, out, [going(*effects), ended(sub, details)])
    with pytest.raises(RunFailed, match=said) as error:
        run()
    assert str(error.value).endswith(f"--resume --out {out}")


def test_a_signal_stops_the_run_and_waits_for_its_end(monkeypatch, app, tmp_path):
    def interrupt() -> None:
        raise Interrupted

    link, _, run = follow(monkeypatch, app, tmp_path / "out", [going(interrupt), going(), ended("stopped")])
    with pytest.raises(Interrupted):
        run()
    assert link.stopped == ["7"]
    assert next(link.steps, None) is None


def unreachable() -> dict[str, Any]:
    raise RunFailed("no answer")


def test_a_superlink_that_comes_back_is_waited_for(monkeypatch, app, tmp_path):
    out = tmp_path / "out"
    steps = [going(rounds(out, 1)), unreachable, unreachable, going(summary(out, "finished")), ended()]
    _, heard, run = follow(monkeypatch, app, out, steps)
    run()
    assert heard.rounds == [1]


def test_a_superlink_that_stays_away_ends_it(monkeypatch, app, tmp_path):
    monkeypatch.setattr(following, "_LOST_SECONDS", 0.0)
    link, _, run = follow(monkeypatch, app, tmp_path / "out", [going(), unreachable])
    with pytest.raises(RunFailed, match="no answer"):
        run()
    assert not link.stopped


def test_what_happens_to_nodes_is_told(monkeypatch, app, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    journal = out / "deployment.jsonl"
    journal.write_text('{"event": "old"}\n')
    whole = '{"event": "refused reply", "round": 2, "client": 1, "node": "9", "reason": "not finite"}\n'

    def append(text: str) -> Callable[[], object]:
        return lambda: journal.write_text(journal.read_text() + text)

    steps = [
        going(append(whole[:20])),
        going(append(whole[20:] + '{"event": "failed", "reason": "said elsewhere"}\nno json\n')),
        going(append('{"event": "no node", "client": 3}\n'), summary(out, "finished")),
        ended(),
    ]
    _, heard, run = follow(monkeypatch, app, out, steps)
    run()
    assert heard.notes == [
        "Flower run 7",
        "refused reply: round 2, client 1, node 9, reason not finite",
        "no node: client 3",
    ]


def test_nothing_that_is_shown_can_act_on_a_terminal(monkeypatch, app, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    event = {"event": "refused reply", "client": "\x1b[2J", "node": "9\r", "reason": "\x1b]0;owned\x07 ü"}
    steps = [
        going(lambda: (out / "deployment.jsonl").write_text(json.dumps(event) + "\n")),
        going(),
        ended("failed", "ServerApp failed with exception: node 9 said \x1b[2Jthis."),
    ]
    _, heard, run = follow(monkeypatch, app, out, steps)
    with pytest.raises(RunFailed, match=r"node 9 said \\x1b\[2Jthis\. To go on"):
        run()
    assert heard.notes[1:] == [r"refused reply: client \x1b[2J, node 9\r, reason \x1b]0;owned\x07 ü"]
