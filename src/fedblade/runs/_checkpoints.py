"""The saved states of a run.

The record of a round is written before its checkpoint. A resumed run takes the newest checkpoint that is not damaged,
cuts the history back to it and goes on. A round that is done twice gives the same result, because nothing in it depends
on the clock or on earlier random draws.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.core.errors import CorruptFile
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.tensorfile import read_facts, read_tensors, write_tensors
from fedblade.core.tree import Tree
from fedblade.results import FolderRecord, RunDirectory

_BEST = "best.safetensors"
_NAME = re.compile(r"round-(\d{6,})\.safetensors")
_ROUND, _RUN, _STATES, _ACCURACY = "round", "run", "states", "accuracy"


@dataclass(frozen=True)
class Restored:
    """Where a run goes on: the server's state, the facts that were saved with it, and notes for the user."""

    state: ServerState
    facts: Mapping[str, Any]
    notes: tuple[str, ...] = ()


class Checkpoints:
    """States of the server by round, each with further facts of the run, and the best model so far.

    A checkpoint carries its round, the digest of its run and the digests of the clients' states. A checkpoint that
    does not fit its name, its run or the clients' states is not used.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self.folder = directory.checkpoints

    def save(self, state: ServerState, keep: int, facts: Mapping[str, Any], store: ClientStore) -> int:
        """Save a state and its `facts`, delete all but the newest `keep`, and return the oldest round that is left.

        The states of the clients must be on the disk before.
        """
        self._directory.check_held()
        marks = {_ROUND: state.round, _RUN: self._directory.run, _STATES: store.contents(state.round)}
        write_tensors(self._path(state.round), state.flat(), {**marks, **facts})
        self._directory.check_held()
        saved = self.rounds
        for old in saved[:-keep]:
            self._path(old).unlink(missing_ok=True)
        # Somebody may have removed the new checkpoint already.
        return min([state.round, *saved[-keep:]])

    def restore(self, start: ServerState, store: ClientStore, interval: int) -> Restored:
        """The newest checkpoint that can be used, or `start` where no checkpoint was due yet.

        A checkpoint is due after `interval` rounds, or after more where the run had a longer interval before. A
        checkpoint whose rounds are all on record goes before a newer one with a gap in the history.
        """
        recorded = self._directory.rounds_on_record()
        # Another run's history may have been put here.
        done = min(recorded, self._directory.rounds_of_this_run())
        refusals: dict[int, str] = {}
        for round_ in sorted(self.rounds, key=lambda saved: (saved <= recorded, saved), reverse=True):
            try:
                tensors, facts = self._checked(round_, store)
                restored = start.restored(tensors, round_)
            except (CorruptFile, KeyError) as error:
                refusals[round_] = str(error).rstrip(".")
                continue
            others = [
                f"the checkpoint of round {other} cannot be used, so that of round {round_} is: {why}"
                for other, why in refusals.items()
            ]
            return Restored(restored, facts, tuple(others))
        if refusals or done > max(interval, *self._former_intervals()):
            why = "; ".join(refusals.values()) or f"'{self.folder}' has none"
            raise CorruptFile(
                f"'{self._directory.path}' has {done} rounds and no checkpoint that the run can go on from: {why}. "
                f"Put what is missing or changed back as it was, or start again from round 0 with --restart."
            )
        # States that an earlier start of the run left are not read.
        store.check(0, {})
        return Restored(start, {}, (f"no checkpoint was saved yet: {done} rounds are done again",) * bool(done))

    def _former_intervals(self) -> list[int]:
        """The numbers of rounds between two checkpoints that the run has had before; at least one number."""
        record = self._directory.record
        changes = () if record is None else record.changes
        return [0, *(int(change["before"]) for change in changes if change["key"] == "checkpoint.every")]

    def save_best(self, state: ServerState, accuracy: float) -> None:
        """Keep the model with the highest accuracy so far."""
        self._directory.check_held()
        facts = {_ROUND: state.round, _ACCURACY: accuracy, _RUN: self._directory.run}
        write_tensors(self.folder / _BEST, state.flat(), facts)

    def best(self, start: ServerState) -> tuple[ServerState, float] | None:
        """The best model kept so far and its accuracy, or None."""
        if not (self.folder / _BEST).is_file():
            return None
        tensors, facts = read_tensors(self.folder / _BEST)
        if not {_ROUND, _ACCURACY} <= facts.keys():
            raise CorruptFile(f"'{self.folder / _BEST}' is another file than the best model")
        self._check_run(facts, int(facts[_ROUND]))
        return start.restored(tensors, int(facts[_ROUND])), float(facts[_ACCURACY])

    def runs(self) -> list[str]:
        """The digests of the runs that the checkpoints say they are of, without checkpoints that say nothing."""
        found = []
        for round_ in self.rounds:
            try:
                found.append(read_facts(self._path(round_)).get(_RUN))
            except CorruptFile:
                continue
        return [run for run in found if isinstance(run, str)]

    def record(self) -> FolderRecord | None:
        """What the folder says of itself; None if it says nothing, or does not fit the checkpoints.

        It does not fit if it speaks of another run than all checkpoints do, or is from when the run had fewer rounds.
        """
        record, found = self._directory.record, self.runs()
        if record is None or (found and record.run not in found) or 0 < record.rounds < self.newest:
            return None
        return record

    @property
    def newest(self) -> int:
        """The round of the newest checkpoint, 0 without any."""
        return max(self.rounds, default=0)

    @property
    def rounds(self) -> list[int]:
        """The rounds of the checkpoints, in order; files with other names are the user's."""
        names = [_NAME.fullmatch(path.name) for path in self.folder.glob("round-*.safetensors")]
        return sorted(int(name[1]) for name in names if name)

    @property
    def best_round(self) -> int:
        """The round of the best model kept so far, 0 if the run keeps none."""
        best = self.folder / _BEST
        return int(read_facts(best).get(_ROUND, 0)) if best.is_file() else 0

    def files_of(self, round_: int) -> list[Path]:
        """The files of a checkpoint without the states of clients."""
        return [self._path(round_), *self.folder.glob(_BEST)]

    def states(self, round_: int) -> dict[str, str] | None:
        """The state files that a checkpoint needs, with their digests; None if an earlier version saved it."""
        return self._read(round_)[1].get(_STATES)

    def _checked(self, round_: int, store: ClientStore) -> tuple[Tree, dict[str, Any]]:
        """The tensors and facts of a checkpoint that belongs to this round, this run and these states of clients."""
        tensors, facts = self._read(round_)
        if _STATES in facts:
            store.check(round_, facts[_STATES])
        return tensors, facts

    def _read(self, round_: int) -> tuple[Tree, dict[str, Any]]:
        """The tensors and facts of a checkpoint that belongs to this round and this run."""
        tensors, facts = read_tensors(self._path(round_))
        if facts.get(_ROUND) != round_:
            raise CorruptFile(f"'{self._path(round_)}' is the checkpoint of round {facts.get(_ROUND)}")
        self._check_run(facts, round_)
        return tensors, facts

    def _check_run(self, facts: Mapping[str, Any], round_: int) -> None:
        record = self._directory.record
        is_older = facts.get(_RUN) is None and record is not None and round_ <= record.unmarked
        if self._directory.run is not None and facts.get(_RUN) != self._directory.run and not is_older:
            raise CorruptFile(f"a file of round {round_} in '{self.folder}' belongs to another run")

    def _path(self, round_: int) -> Path:
        return self.folder / f"round-{round_:06d}.safetensors"
