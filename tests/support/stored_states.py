"""What the state files in a folder hold."""

from pathlib import Path

from fedblade.core.state_file import StoredState, read_state_file


def state_files(folder: Path) -> list[Path]:
    """The finished state files of a run folder or of a folder of client states."""
    return sorted(folder.rglob("*.states"))


def newest_states(folder: Path) -> dict[int, StoredState]:
    """By client, where its newest state is."""
    newest: dict[int, StoredState] = {}
    for path in state_files(folder):
        file = read_state_file(path)
        for state in (file.stored(row) for row in range(len(file.keys))):
            if state.client not in newest or state.round >= newest[state.client].round:
                newest[state.client] = state
    return newest
