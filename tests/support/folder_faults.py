"""What people and disks do to the files of a run folder, and what docs/reference-run-folder.md says of it."""

import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference-run-folder.md"
NEWEST, EARLIER = "checkpoints/round-N.safetensors (newest)", "checkpoints/round-N.safetensors (earlier)"
STATES = "checkpoints/clients/*.states"
RUN_FOLDER = "the run folder"
IMPOSSIBLE = "–"


@dataclass(frozen=True)
class Sources:
    """Folders that a file may be swapped with: a run of other settings, and the same run when it had fewer rounds."""

    other: Path
    older: Path


def read_tables() -> dict[str, dict[str, str]]:
    """The cells of the page's tables of faults, by file or folder and by fault."""
    cells: dict[str, dict[str, str]] = {}
    faults: list[str] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        row = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            faults = []
        elif row[0] in ("file", "folder") and row[1] in FAULTS:
            faults = row[1:]
        elif faults and not set(row[0]) <= set("- "):
            cells[row[0]] = dict(zip(faults, row[1:], strict=True))
    return cells


def place_of(row: str, folder: Path) -> Path | None:
    """The file or folder that a row of the table means; None if there is none."""
    if row in (NEWEST, EARLIER):
        saved = sorted((folder / "checkpoints").glob("round-*.safetensors"))
        return saved[-1] if row == NEWEST and saved else saved[-2] if row == EARLIER and len(saved) > 1 else None
    if row == STATES:
        files = sorted((folder / "checkpoints" / "clients").glob("*.states"))
        return files[-1] if files else None
    path = folder if row == RUN_FOLDER else folder / row
    return path if path.exists() else None


def edited(rng: random.Random, content: bytes) -> bytes:
    """A digit, a line or all line ends are changed; bytes that are no text are what an editor makes of them."""
    if b"\x00" in content:
        return content.decode(errors="replace").encode()
    lines = content.split(b"\n")
    number = rng.randrange(max(1, len(lines) - 1))
    match rng.choice(["digit", "digit", "digit", "blank", "without", "twice", "moved", "ends"]):
        case "digit":
            digits = [match.start() for match in re.finditer(rb"\d", content)]
            place = rng.choice(digits) if digits else 0
            return content[:place] + b"%d" % rng.choice([1, 3, 7, 9]) + content[place + 1 :]
        case "blank":
            lines[number] = b""
        case "without":
            del lines[number]
        case "twice":
            lines.insert(number, lines[number])
        case "moved":
            lines.insert(rng.randrange(len(lines)), lines.pop(number))
        case "ends":
            return content.replace(b"\n", b"\r\n")
    return b"\n".join(lines)


def cut_off(rng: random.Random, content: bytes) -> bytes:
    """The end of a file is gone, often at the end of a line, and sometimes nothing is left."""
    place = rng.randrange(len(content)) if content else 0
    return content[: rng.choice([0, place, place, content.rfind(b"\n", 0, place) + 1])]


def flipped(rng: random.Random, content: bytes) -> bytes:
    """One bit is another one."""
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


CHANGES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "edited": edited, "cut off": cut_off, "bit flipped": flipped,
}  # fmt: skip
SWAPS = ("of another run", "older copy")
FAULTS = ("edited", "removed", *SWAPS, "cut off", "bit flipped")


def inflict(fault: str, row: str, folder: Path, sources: Sources, rng: random.Random) -> bool:
    """Do a fault to the file or folder of a row; returns whether that was possible and has changed something."""
    path, source = place_of(row, folder), None
    if fault in SWAPS:
        source = place_of(row, sources.other if fault == SWAPS[0] else sources.older)
    if path is None or (fault in SWAPS and source is None):
        return False
    if path.is_dir():
        _inflict_on_folder(path, source, rng)
        return True
    try:
        before = path.read_bytes()
    except FileNotFoundError:  # the run has removed it meanwhile
        return False
    if fault in CHANGES:
        after = CHANGES[fault](rng, before) if before else before
    else:
        after = None if source is None else source.read_bytes()
    if before == after:
        return False
    path.unlink(missing_ok=True) if after is None else path.write_bytes(after)
    return True


def _inflict_on_folder(path: Path, source: Path | None, rng: random.Random) -> None:
    """Remove or rename a folder, and put a copy of `source` in its place if there is one."""
    if rng.random() < 0.5:
        path.rename(path.with_name(f"{path.name}-aside"))
    while path.exists():  # a run may add files meanwhile
        shutil.rmtree(path, ignore_errors=True)
    if source is not None:
        shutil.copytree(source, path)
