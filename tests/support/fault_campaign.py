"""A run whose folder suffers one fault, is resumed, and must end as docs/run-folder.md says."""

import json
import random
import re
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.commands import Command, Zygote
from support.folder_faults import NEWEST, Sources, inflict, place_of

RUNNING, STOPPED, FINISHED = "running", "stopped", "finished"
MOMENTS = (RUNNING, STOPPED, STOPPED, FINISHED)
ROUNDS, FEWER = 14, 6
_PERSONAL = {"dataset.test_split": "matched", "evaluation.protocol": "gapa"}
SETTINGS: dict[str, Any] = {
    "model": "mlp", "hidden": [24], "dim": 16, "norm": "batch", "num_clients": 8, "clients_per_round": 4, "epochs": 1,
    "momentum": 0.0, "metrics": "accuracy,spectrum,drift", "checkpoint.every": 2, "rounds": ROUNDS, **_PERSONAL,
}  # fmt: skip
_AT_END = ("summary.json", "model.safetensors")
_TIMED = ("history.jsonl", "summary.json")
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
    """What a command left behind."""

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
    """What must be the same whatever happened to the folder, without the clock."""
    whole = ("model.safetensors", "diagnostics.jsonl", "clients.jsonl", "partition.json", "metrics.json", "config.toml")
    texts = {name: (folder / name).read_bytes() for name in (*whole, *_TIMED) if (folder / name).is_file()}
    return {name: [_timeless(part) for part in _parts(name, text)] for name, text in texts.items()}


def _parts(name: str, text: bytes) -> list[bytes]:
    """The lines of a file of lines, and the whole of every other file."""
    return text.splitlines() if name.endswith(".jsonl") else [text]


def _timeless(part: bytes) -> Any:
    """A JSON object without its seconds; what is none stays as it is."""
    try:
        return {key: value for key, value in json.loads(part).items() if "seconds" not in key}
    except (ValueError, AttributeError):
        return part


class Campaign:
    """Runs of one method in `place`: whole ones to compare with, and those that suffer."""

    def __init__(self, zygote: Zygote, place: Path, method: str) -> None:
        self._zygote, self._place, self._method = zygote, place, method
        self._is_stateful = method == "scaffold"
        self._whole = place / "whole"
        self.sources = Sources(place / "other", place / "older")
        for folder, changes in (
            (self._whole, {}),
            (self.sources.other, {"seed": 5}),
            (self.sources.older, {"rounds": FEWER}),
        ):
            assert self._finish(self._start(folder, changes)).status == 0
        self._expected = results_of(self._whole)

    def failure(self, case: Case, promise: str) -> str | None:
        """Carry out a case; what is wrong with its end, or None."""
        rng = random.Random(case.seed)
        folder = self._place / "run"
        for left in self._place.glob("run*"):
            shutil.rmtree(left)
        carry_out = {RUNNING: self._running, STOPPED: self._stopped, FINISHED: self._finished}[case.moment]
        return carry_out(case, folder, promise, rng)

    def _running(self, case: Case, folder: Path, promise: str, rng: random.Random) -> str | None:
        command = self._start(folder)
        self._wait_for(case, folder, command, rng)
        done = inflict(case.fault, case.row, folder, self.sources, rng)
        answer = self._finish(command)
        if not done and not inflict(case.fault, case.row, folder, self.sources, rng):
            return "the fault was not possible"
        if not answer.is_worded:
            return f"the run itself: {answer}"
        if answer.status != 0:
            if promise == "same":
                return f"the run was ended: {answer}"
            place = re.search(r"--out '([^']*)'", answer.err)
            if promise == "rescued" and place:
                return self._end(Path(place[1]), promise, self._resume(Path(place[1]), rng))
            if promise == "rescued":
                # A folder that somebody is removing loses the states of clients before it is gone itself.
                lost = "cannot go on" in answer.err or "the state of client" in answer.err
                return None if lost and self._is_stateful else f"not rescued: {answer}"
        return self._end(folder, promise, self._resume(folder, rng))

    def _stopped(self, case: Case, folder: Path, promise: str, rng: random.Random) -> str | None:
        command = self._start(folder)
        self._wait_for(case, folder, command, rng)
        command.stop(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        self._finish(command)
        if place_of(case.row, folder) is None:
            assert self._finish(self._start(folder, {}, "--resume")).status == 0
        return self._suffer(case, folder, promise, rng)

    def _finished(self, case: Case, folder: Path, promise: str, rng: random.Random) -> str | None:
        shutil.copytree(self._whole, folder)
        return self._suffer(case, folder, promise, rng)

    def _suffer(self, case: Case, folder: Path, promise: str, rng: random.Random) -> str | None:
        """The fault while nobody uses the folder."""
        backup = self._place / "run-backup"
        shutil.copytree(folder, backup)
        for _ in range(20):
            if inflict(case.fault, case.row, folder, self.sources, rng):
                break
        else:
            return "the fault was not possible"
        if rng.random() < 0.25 and not (report := self._finish(self._begin(["report", folder]))).is_worded:
            return f"report: {report}"
        answer = self._resume(folder, rng)
        trouble = self._end(folder, promise, answer)
        if trouble is None and answer.status != 0:
            # What was refused was not touched: with the files put back, nothing is lost.
            for path in backup.rglob("*"):
                if path.is_file():
                    (folder / path.relative_to(backup)).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, folder / path.relative_to(backup))
            again = self._resume(folder, rng)
            wrong = self._end(folder, "same", again)
            return f"put back after {answer}: {wrong}" if wrong else None
        return trouble

    def _end(self, folder: Path, promise: str, answer: Answer) -> str | None:
        """What is wrong with the end of a case, or None."""
        if not answer.is_worded:
            return f"resumed: {answer}"
        if answer.status != 0:
            return None if promise not in ("same", "lines lost") else f"refused: {answer}"
        found = results_of(folder)
        different = [name for name in self._expected if found.get(name) != self._expected[name]]
        if promise in ("lines lost", "rescued") and "diagnostics.jsonl" in different:
            different.remove("diagnostics.jsonl")
        if promise == "as asked" and found["summary.json"][0].get("changes"):
            return None
        return f"{', '.join(different)} differ: {answer}" if different else None

    def _wait_for(self, case: Case, folder: Path, command: Command, rng: random.Random) -> None:
        """Wait until a moment in the run at which the file of the case is there, if it ever is."""
        # Without a checkpoint before the newest one, nothing is left to go on from.
        rounds, delay = rng.randint(5 if case.row == NEWEST else 1, ROUNDS - 1), rng.uniform(0, 0.06)
        is_late = case.row in _LATE and not (case.moment == STOPPED and case.row in _AT_END)
        while not command.has_ended():
            history = folder / "history.jsonl"
            begun = history.exists() and history.read_bytes().count(b"\n") >= rounds
            if place_of(case.row, folder) is not None if is_late else begun:
                break
            time.sleep(0.002)
        time.sleep(delay)

    def _resume(self, folder: Path, rng: random.Random) -> Answer:
        """Go on: as the folder says, or with all settings named again."""
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
