"""The digests by which a node's operator pins an app and the files of own parts."""

import hashlib
from pathlib import Path

from fedblade.flower.app_folder import PARTS, AppFolder


def digest_of(content: bytes) -> str:
    """The SHA-256 digest of an app's bytes or of a file."""
    return hashlib.sha256(content).hexdigest()


def app_digest(app: AppFolder) -> str:
    """The digest of the app as Flower sends it to the nodes; every file of the app changes it."""
    # Imported here, because loading Flower takes more than a second, and the digests of files do not need it.
    from fedblade.flower._flwr_internals.apps import app_bytes

    return digest_of(app_bytes(app.path))


def own_part_digests(app: AppFolder) -> dict[str, str]:
    """The digests of the app's own parts by file name."""
    files = sorted((app.path / PARTS).glob("*.py"))
    return {file.name: digest_of(file.read_bytes()) for file in files if file.name != "__init__.py"}


def is_digest(text: str) -> bool:
    """Whether a text has the form of a digest."""
    return len(text) == hashlib.sha256().digest_size * 2 and set(text) <= set("0123456789abcdef")


def copy_own_parts(app: AppFolder, folder: Path) -> list[str]:
    """Copy the app's own parts into a node's folder; their digests."""
    digests = own_part_digests(app)
    target = folder / PARTS
    target.mkdir(parents=True, exist_ok=True)
    for name in digests:
        (target / name).write_bytes((app.path / PARTS / name).read_bytes())
    return list(digests.values())
