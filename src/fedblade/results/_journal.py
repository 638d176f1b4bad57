"""The journal of a run: a second copy of its lines, by which a line that was changed or lost is mended."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fedblade.core.files import cannot_write, write_atomic
from fedblade.core.words import plural
from fedblade.results._file_names import CLIENTS, DIAGNOSTICS, HISTORY
from fedblade.results._json_files import add_line, as_line, read_lines

KEYS = {HISTORY: "round", DIAGNOSTICS: "round", CLIENTS: "client"}
"""The files that the journal copies, each with the field that tells its lines apart."""
LONG = frozenset({DIAGNOSTICS})
"""Files whose lines are too long to be kept twice: the journal has only the digest of a line, which shows a change."""


@dataclass(frozen=True)
class JournalEntry:
    """A line of a file: its round or client, its text or (in `LONG` files) the digest of the text, and a seal.

    The seal is a digest of the other fields and of the run, so that damaged entries and those of other runs are
    recognised.
    """

    file: str
    key: int
    content: str
    seal: str


class Journal:
    """The journal file of the run with the id `run`, which has `rounds` rounds.

    Personal models are measured after the last round, so the lines of another number of rounds are not of this run.
    Entries are added without waiting for the disk: the files that they copy are the ones that survive a power cut.
    """

    def __init__(self, path: Path, run: str, rounds: int) -> None:
        self._path, self._run, self._rounds = path, run, rounds

    def at(self, path: Path) -> "Journal":
        """The journal of the same run in another file."""
        return Journal(path, self._run, self._rounds)

    def add(self, file: str, key: int, line: str) -> None:
        """Note a line that was added to a file; `key` is its round or client."""
        add_line(self._path, as_line(asdict(self._entry(file, key, line))), sync=False)

    def contents(self, file: str) -> dict[int, str]:
        """The contents of the entries of a file by round or client, in order; of a repeated one the later counts."""
        return {entry.key: entry.content for entry in self._entries() if entry.file == file}

    @property
    def is_of_this_run(self) -> bool:
        """Whether the file has entries of this run."""
        return bool(self._entries())

    def replace(self, file: str, lines: Mapping[int, str]) -> None:
        """Make the entries of a file those of `lines`, by round or client; the entries of other files stay."""
        others = [entry for entry in self._entries() if entry.file != file]
        self._write([*others, *(self._entry(file, key, line) for key, line in lines.items())])

    def _write(self, entries: Iterable[JournalEntry]) -> None:
        try:
            write_atomic(self._path, "".join(f"{as_line(asdict(entry))}\n" for entry in entries))
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def _entries(self) -> list[JournalEntry]:
        """All entries that are whole and of this run."""
        found = []
        for stored in read_lines(self._path).objects:
            file, key, content, seal = (stored.get(name) for name in ("file", "key", "content", "seal"))
            if seal == self._seal(file, key, content):
                found.append(JournalEntry(str(file), int(key or 0), str(content), seal))
        return found

    def _entry(self, file: str, key: int, line: str) -> JournalEntry:
        content = digest_of(line) if file in LONG else line
        return JournalEntry(file, key, content, self._seal(file, key, content))

    def _seal(self, file: object, key: object, content: object) -> str:
        owner = f"{self._run}, {plural(self._rounds, 'round')}" if file == CLIENTS else self._run
        return hashlib.sha256(json.dumps([owner, file, key, content]).encode()).hexdigest()


def digest_of(line: str) -> str:
    """SHA-256 of a line."""
    return hashlib.sha256(line.encode()).hexdigest()
