"""Errors that say what was given, what was expected and what to do.

Two families decide the exit status of the command line: a mistake in the request (`Misconfigured`, status 2) and a run
that failed (`RunFailed`, status 1). Everything else is a bug and keeps its traceback.
"""

import difflib
from collections.abc import Iterable, Sequence


class FedbladeError(Exception):
    """Base of every error this library raises on purpose."""

    exit_status = 1


class Misconfigured(FedbladeError):
    """The request cannot be carried out as written; the message says how to change it."""

    exit_status = 2


class Unsupported(Misconfigured):
    """The parts exist but cannot work together, here or ever."""


class MissingExtra(Misconfigured):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package '{package}'. Install it with: pip install 'fedblade[{extra}]'")


class RunFailed(FedbladeError):
    """A run that started could not go on; everything up to the last checkpoint is kept."""


class NonFinite(RunFailed):
    """A loss, a parameter or a sum became NaN or infinite."""


class CorruptFile(RunFailed):
    """A file of a run is incomplete or was changed by another program."""


class FolderLost(RunFailed):
    """The folder of a run was removed, renamed or replaced while the run was writing to it."""


_MOST_OPTIONS, _MOST_CLOSE, _SHORTEST_WORD = 12, 6, 3


def nearest(given: str, options: Iterable[str], first: Sequence[str] = ()) -> str:
    """A hint ` Did you mean 'x'? Choose from: x, y.` with the closest options and all options.

    Of many options it has the closest ones, or a few if none is close. The options of `first` come before the others.
    """
    names = [*first, *sorted(set(options).difference(first))]
    close = _close(given, names)
    meant = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    if len(names) > _MOST_OPTIONS:
        return meant or f" Choose from: {', '.join(names[:_MOST_OPTIONS])}, …"
    return f"{meant} Choose from: {', '.join(names)}." if len(names) > len(close) else meant


def _close(given: str, names: Sequence[str]) -> list[str]:
    """The option of this name in other letters, or a few that have the word in them, or the one spelled most alike."""
    word = given.lower()
    same = [name for name in names if name.lower() == word]
    having = [name for name in names if word in name.lower()] if len(word) >= _SHORTEST_WORD else []
    if same or 0 < len(having) <= _MOST_CLOSE:
        return same or having
    by_letters = {name.lower(): name for name in reversed(names)}
    return [by_letters[name] for name in difflib.get_close_matches(word, by_letters, n=1, cutoff=0.6)]
