"""The saved states of a run.

The record of a round is written before its checkpoint. A resumed run takes the newest checkpoint that is not damaged,
cuts the history back to it and goes on. A round that is done twice gives the same result, because nothing in it depends
on the clock or on earlier random draws.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedblade.core.errors import CorruptFile
from fedblade.core.state import ServerState
from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.results import HISTORY, RunDirectory

_BEST = "best.safetensors"


class Checkpoints:
    """States of the server by round, each with further facts of the run, and the best model so far."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self.folder = directory.checkpoints

    def save(self, state: ServerState, keep: int, facts: Mapping[str, Any]) -> int:
        """Save a state and its `facts`, delete all but the newest `keep`, and return the oldest round that is left."""
        write_tensors(self._path(state.round), state.flat(), {"round": state.round, **facts})
        saved = self._saved()
        for old in saved[:-keep]:
            self._path(old).unlink(missing_ok=True)
        return saved[-keep:][0]

    def restore(self, start: ServerState) -> tuple[ServerState, dict[str, Any], list[str]]:
        """The newest checkpoint that is usable (or `start`), its facts, and a note for each damaged checkpoint."""
        notes: list[str] = []
        history = self._directory.path / HISTORY
        if self._saved() and not history.is_file():
            raise CorruptFile(f"'{history}' is gone. Put it back, or start a new run elsewhere.")
        recorded = self._directory.rounds_on_record()
        for round_ in reversed(self._saved()):
            try:
                if round_ > recorded:
                    raise CorruptFile(f"the history ends with round {recorded}")
                tensors, facts = read_tensors(self._path(round_))
                return start.restored(tensors, round_), facts, notes
            except (CorruptFile, KeyError) as error:
                notes.append(f"the checkpoint of round {round_} cannot be used, so an earlier one is: {error}")
                self._path(round_).replace(self._path(round_).with_suffix(".damaged"))
        return start, {}, notes

    def save_best(self, state: ServerState, accuracy: float) -> None:
        """Keep the model with the highest accuracy so far."""
        write_tensors(self.folder / _BEST, state.flat(), {"round": state.round, "accuracy": accuracy})

    def best(self, start: ServerState) -> tuple[ServerState, float] | None:
        """The best model kept so far and its accuracy, or None."""
        if not (self.folder / _BEST).is_file():
            return None
        tensors, facts = read_tensors(self.folder / _BEST)
        return start.restored(tensors, int(facts["round"])), float(facts["accuracy"])

    def _path(self, round_: int) -> Path:
        return self.folder / f"round-{round_:06d}.safetensors"

    def _saved(self) -> list[int]:
        numbers = (path.stem.removeprefix("round-") for path in self.folder.glob("round-*.safetensors"))
        # A file with another name, such as a copy that somebody made, is no checkpoint.
        return sorted(int(number) for number in numbers if number.isdecimal())
