"""Run folders of earlier versions, which had one file for each client and round, get the state files of today."""

from collections.abc import Iterator
from pathlib import Path

from fedblade.core.errors import CorruptFile
from fedblade.core.single_states import SingleStates
from fedblade.core.state_file import NOT_REBUILT, read_state_file, read_states, state_file_name
from fedblade.core.state_writer import StateFileWriter
from fedblade.core.tensorfile import decode_tensors

_WRITER = "old"
_AT_A_TIME = 64


def convert_old_states(folder: Path) -> None:
    """Write the states of all clients and rounds into one state file, check the file, then remove the old files.

    If the process is killed, the next call goes on: old files are removed only when the new file is whole.
    """
    old = SingleStates(folder)
    states = [(client, round_) for client in old.clients() for round_ in old.rounds(client)]
    if not states:
        return
    name = state_file_name(0, _WRITER, 0)
    if not (folder / name).is_file():
        _write(old, states, StateFileWriter(folder, name))
    file = read_state_file(folder / name)
    written = [file.stored(row) for row in range(len(file.keys))]
    for first in range(0, len(written), _AT_A_TIME):
        read_states(written[first : first + _AT_A_TIME])
    for state in written:
        old.path(state.client, state.round).unlink(missing_ok=True)
    for client in list(old.clients()):
        _clear(old.path(client, 0).parent)


def _write(old: SingleStates, states: list[tuple[int, int]], writer: StateFileWriter) -> None:
    """Copy the old files, whose bytes are those of a state, a few at a time."""
    try:
        for first in range(0, len(states), _AT_A_TIME):
            writer.append(list(_contents(old, states[first : first + _AT_A_TIME])))
        writer.finish()
    except BaseException:
        writer.path.unlink(missing_ok=True)
        raise


def _contents(old: SingleStates, states: list[tuple[int, int]]) -> Iterator[tuple[int, int, bytes, str]]:
    for client, round_ in states:
        path = old.path(client, round_)
        content = path.read_bytes()
        try:
            _, digest = decode_tensors(content, f"'{path}'")
        except CorruptFile as error:
            raise CorruptFile(f"the state of client {client} is lost: {error}. {NOT_REBUILT}") from error
        yield client, round_, content, digest


def _clear(folder: Path) -> None:
    """Remove what a killed process left in the folder of a client, and the folders if they are empty."""
    for unfinished in folder.glob(".*.safetensors.*.tmp"):
        unfinished.unlink()
    for emptied in (folder, folder.parent):
        if emptied.is_dir() and not any(emptied.iterdir()):
            emptied.rmdir()
