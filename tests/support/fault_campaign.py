"""Run folders that suffer one fault each, and the judgement of how it ends."""

import json
import random
import re
import shutil
import signal
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.commands import Command, Zygote
from support.folder_faults import EARLIER, NEWEST, Sources, inflict, place_of

RUNNING, STOPPED, FINISHED = "running", "stopped", "finished"
MOMENTS = (RUNNING, STOPPED, STOPPED, FINISHED)
SAME, TOLD, REFUSED = "same", "same or told", "same or refused"
LINES_LOST, AS_ASKED, RESCUED = "lines lost", "as asked", "rescued"
OUTCOMES = (SAME, TOLD, REFUSED, LINES_LOST, AS_ASKED, RESCUED)
_MUST_END = (SAME, TOLD, LINES_LOST)
STATEFUL = "scaffold"
ROUNDS, FEWER = 14, 6
SETTINGS: dict[str, Any] = {
    "model": "mlp", "hidden": [24], "dim": 16, "norm": "batch", "num_clients": 8, "clients_per_round": 4, "epochs": 1,
    "momentum": 0.0, "metrics": "accuracy,spectrum,drift", "checkpoint.every": 2, "rounds": ROUNDS,
    "dataset.test_split": "matched", "evaluation.protocol": "gapa",
}  # fmt: skip
_FILES = (
    "config.toml", "history.jsonl", "summary.json", "model.safetensors", "clients.jsonl", "diagnostics.jsonl",
    "partition.json", "metrics.json",
)  # fmt: skip
_TIMED = ("history.jsonl", "summary.json")
_AT_END = ("summary.json", "model.safetensors")
_LATE = (*_AT_END, "clients.jsonl")
"""Files that are written after the last round."""


@dataclass(frozen=True)
class Case:
    """A fault of a file, when it happens, and the seed of everything else."""

    row: str
    fault: str
    moment: str
    seed: str


@dataclass(frozen=True)
class Answer:
    """What a command, or a call that stands for it, left behind."""

    status: int
    out: str
    err: str

    @property
    def is_worded(self) -> bool:
        """Whether the command succeeded, or was refused with one line in words."""
        if self.status == 0:
            return "Traceback" not in self.err
        one_line = len(self.err.strip().splitlines()) == 1 and self.err.startswith("error: ")
        return self.status in (1, 2) and one_line and "bug" not in self.err and "Traceback" not in self.err


def results_of(folder: Path) -> dict[str, Any]:
    """What must be the same whatever happened to a folder: its files without the clock."""
    return {name: _contents(folder / name) for name in _FILES if (folder / name).is_file()}


def _contents(path: Path) -> Any:
    """The bytes of a file; of a configuration the settings, of a file with seconds everything else."""
    if path.suffix == ".toml":
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError):
            return None
    text = path.read_bytes()
    if path.name not in _TIMED:
        return text
    return [_timeless(part) for part in (text.splitlines() if path.suffix == ".jsonl" else [text])]


def _timeless(part: bytes) -> Any:
    """A JSON object without its seconds; what is none stays as it is."""
    try:
        return {key: value for key, value in json.loads(part).items() if "seconds" not in key}
    except (ValueError, AttributeError):
        return part


def trouble_of(folder: Path, whole: Path, promise: str, answer: Answer) -> str | None:
    """What is wrong with a resumed run, measured by the run `whole` and by what the page promises; None if nothing."""
    if not answer.is_worded:
        return f"resumed: {answer}"
    if answer.status != 0:
        return f"refused: {answer}" if promise in _MUST_END else None
    expected, found = results_of(whole), results_of(folder)
    if promise == TOLD:
        found["summary.json"][0].pop("changes", None)
    different = [name for name in expected if found.get(name) != expected[name]]
    if promise in (LINES_LOST, RESCUED) and "diagnostics.jsonl" in different:
        different.remove("diagnostics.jsonl")
    if promise == AS_ASKED:
        # An edited configuration of a finished run has no effect, and stays.
        different = [name for name in different if name != "config.toml"]
        different = [] if found["summary.json"][0].get("changes") else different
    return f"{', '.join(different)} differ: {answer}" if different else None


def suffer(
    case: Case,
    folder: Path,
    whole: Path,
    sources: Sources,
    promise: str,
    resume: Callable[[Path], Answer],
) -> str | None:
    """Do the fault while nobody uses the folder, and resume; what is wrong, or None.

    What is refused must not be touched: with its files put back, the run ends as if nothing had happened.
    """
    rng, backup = random.Random(case.seed), folder.with_name(f"{folder.name}-backup")
    shutil.copytree(folder, backup)
    if not any(inflict(case.fault, case.row, folder, sources, rng) for _ in range(20)):
        return "the fault was not possible"
    answer = resume(folder)
    trouble = trouble_of(folder, whole, promise, answer)
    if trouble is None and answer.status != 0:
        shutil.copytree(backup, folder, dirs_exist_ok=True)
        trouble = trouble_of(folder, whole, SAME, resume(folder))
        trouble = trouble and f"put back after {answer}: {trouble}"
    return trouble


def _least_rounds(case: Case) -> int:
    """After how many rounds a case may begin.

    Without a checkpoint before the newest one, nothing is left to go on from. An older copy is another file only after
    more rounds; an older `folder.json` is another one from the start.
    """
    if case.fault == "older copy" and case.row != "folder.json":
        return FEWER + 3
    return 5 if case.row in (NEWEST, EARLIER) else 1


class Campaign:
    """Runs of one method in processes: whole ones to compare with in `place`, and those that suffer."""

    def __init__(self, zygote: Zygote, place: Path, method: str) -> None:
        self._zygote, self._place, self._method = zygote, place, method
        self._whole, self._sources = place / "whole", Sources(place / "other", place / "older")
        for folder, changes in (
            (self._whole, {}),
            (self._sources.other, {"seed": 5}),
            (self._sources.older, {"rounds": FEWER}),
        ):
            assert self._finish(self._start(folder, changes)).status == 0

    def failure(self, case: Case, promise: str) -> str | None:
        """Carry out a case; what is wrong with its end, or None."""
        rng, folder = random.Random(case.seed), self._place / "run"
        for left in self._place.glob("run*"):
            shutil.rmtree(left)
        if case.moment == RUNNING:
            return self._while_running(case, folder, promise, rng)
        if case.moment == STOPPED:
            self._stop_somewhere(case, folder, rng)
        else:
            shutil.copytree(self._whole, folder)
        return suffer(case, folder, self._whole, self._sources, promise, lambda place: self._go_on(place, rng))

    def _while_running(self, case: Case, folder: Path, promise: str, rng: random.Random) -> str | None:
        command = self._start(folder)
        self._wait_for(case, folder, command, rng)
        done = inflict(case.fault, case.row, folder, self._sources, rng)
        answer = self._finish(command)
        if not done and not any(inflict(case.fault, case.row, folder, self._sources, rng) for _ in range(20)):
            return "the fault was not possible"
        if not answer.is_worded or (answer.status != 0 and promise in (*_MUST_END, AS_ASKED)):
            return f"the run itself: {answer}"
        if answer.status != 0 and promise == RESCUED:
            advised = re.search(r"--resume --out ([^`]*)`", answer.err)
            if advised is None:
                # A folder that somebody is removing loses the states of clients before it is gone itself.
                lost = "cannot go on" in answer.err or "the state of client" in answer.err
                return None if lost and self._method == STATEFUL else f"not rescued: {answer}"
            folder, promise = Path(advised[1]), LINES_LOST
            moved = re.search(r"It is now '([^']*)'. Move it back", answer.err)
            if moved is not None:
                shutil.rmtree(folder / "checkpoints", ignore_errors=True)
                Path(moved[1]).rename(folder / "checkpoints")
        return trouble_of(folder, self._whole, promise, self._go_on(folder, rng))

    def _stop_somewhere(self, case: Case, folder: Path, rng: random.Random) -> None:
        """Stop a run at a moment at which the file of the case is there, or let it end if that is never so."""
        command = self._start(folder)
        self._wait_for(case, folder, command, rng)
        command.stop(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        self._finish(command)
        if place_of(case.row, folder) is None:
            assert self._finish(self._start(folder, {}, "--resume")).status == 0

    def _wait_for(self, case: Case, folder: Path, command: Command, rng: random.Random) -> None:
        """Wait until some rounds are done; if the file is written after the last round, until it is there."""
        rounds, delay = rng.randint(_least_rounds(case), ROUNDS - 1), rng.uniform(0, 0.06)
        is_late = case.row in _LATE and not (case.moment == STOPPED and case.row in _AT_END)
        history = folder / "history.jsonl"
        while not command.has_ended():
            begun = history.exists() and history.read_bytes().count(b"\n") >= rounds
            if place_of(case.row, folder) is not None if is_late else begun:
                break
            time.sleep(0.002)
        time.sleep(delay)

    def _go_on(self, folder: Path, rng: random.Random) -> Answer:
        """Resume as the folder says, or with all settings named again; sometimes a report is made before."""
        if rng.random() < 0.25:
            report = self._finish(self._begin(["report", folder]))
            if not report.is_worded:
                return report
        if rng.random() < 0.5:
            return self._finish(self._begin(["run", "--resume", "--out", folder]))
        return self._finish(self._start(folder, {}, "--resume"))

    def _start(self, folder: Path, changes: Mapping[str, Any] | None = None, *options: str) -> Command:
        settings = SETTINGS | {"method": self._method} | dict(changes or {})
        listed = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        return self._begin(["run", "quickstart", *listed, *options, "--out", folder])

    def _begin(self, argv: list[object]) -> Command:
        return self._zygote.start(argv, self._place, self._place / ".out", self._place / ".err", {})

    def _finish(self, command: Command) -> Answer:
        status = command.wait()
        texts = [path.read_bytes().decode(errors="replace") for path in (command.stdout, command.stderr)]
        return Answer(status, texts[0][-400:], texts[1])
