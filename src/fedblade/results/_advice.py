"""Commands that messages advise, written so that they can be pasted."""

import shlex
from pathlib import Path

from fedblade.results._file_names import DEPLOYMENT


def resume_command(folder: Path) -> str:
    """The command that goes on with the run in a folder, or mends it."""
    deployed = "flower " if (folder / DEPLOYMENT).is_file() else ""
    return f"`fedblade {deployed}run --resume --out {shlex.quote(str(folder))}`"


def report_command(folder: Path) -> str:
    """The command that reports the run in a folder."""
    return f"fedblade report {shlex.quote(str(folder))}"
