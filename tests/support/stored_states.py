"""What the checkpoints and the state files of a run folder hold, whatever their names and the order of their states."""

import json
from pathlib import Path

from fedblade.core.state_file import StoredState, read_state_file
from fedblade.core.tensorfile import read_tensors
from fedblade.core.tree import tree_digest


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


def saved_results(folder: Path) -> dict[str, str]:
    """What the newest checkpoint holds, and every client's newest state.

    The names of state files and the run's digest are left out: a run that was stopped, or that several processes
    share, begins other state files, and its settings say how many processes there are.
    """
    path = max((folder / "checkpoints").glob("round-*.safetensors"))
    tensors, facts = read_tensors(path)
    checkpoint = f"{path.name} {tree_digest(tensors)} {json.dumps({**facts, 'states': None, 'run': None})}"
    states = newest_states(folder / "checkpoints")
    clients = {f"client {client}": f"round {states[client].round} {states[client].digest}" for client in sorted(states)}
    return {"checkpoint": checkpoint} | clients
