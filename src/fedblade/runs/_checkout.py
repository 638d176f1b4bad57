"""The commit of a checkout, read from the files of git without running git."""

from functools import cache
from pathlib import Path


@cache
def commit_of(checkout: Path) -> str | None:
    """The commit of a checkout, also of a linked worktree; None if the folder is no checkout or has no commit yet."""
    try:
        own = _git_folder(checkout)
        head = _text(own / "HEAD")
        name = head.removeprefix("ref: ")
        if name == head:
            return head
        shared = _shared_folder(own)
        if (shared / name).is_file():
            return _text(shared / name)
        packed = _text(shared / "packed-refs").splitlines()
    except OSError:
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)


def _git_folder(checkout: Path) -> Path:
    """The folder with HEAD. In a linked worktree `.git` is a file that names it."""
    plain = checkout / ".git"
    return checkout / _text(plain).removeprefix("gitdir: ") if plain.is_file() else plain


def _shared_folder(own: Path) -> Path:
    """The folder with the branches, which a linked worktree shares with the main one."""
    named = own / "commondir"
    return own / _text(named) if named.is_file() else own


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()
