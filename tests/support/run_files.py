"""What runs leave behind."""

import hashlib
import json

from support.stored_states import saved_results


def rows(folder):
    """The lines of a history without the clock."""
    path = folder / "history.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [{key: value for key, value in json.loads(line).items() if "seconds" not in key} for line in lines]


def count_rounds(folder):
    """Lines written so far."""
    path = folder / "history.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def files_of(folder):
    """What two runs must share to be called identical; a client's state may be with one rank or another."""
    assert json.loads((folder / "summary.json").read_text())["status"] == "finished"
    files = [folder / "model.safetensors", *folder.glob("diagnostics.jsonl")]
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return rows(folder), digests | saved_results(folder)
