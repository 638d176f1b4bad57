"""The files in which the ranks keep clients' states: what a checkpoint needs of them, and their check on resume."""

from collections.abc import Mapping

from fedblade.core.state import ClientStore
from fedblade.engines.ranks._errors import describe_error, raise_first_error
from fedblade.engines.ranks._ranks import Ranks

Contents = Mapping[str, str]


class FilesOfRanks:
    """The files of all ranks' stores, as one rank knows them.

    With `owned` every rank has a folder of its own, and the names of its files begin with `rank<r>/`. Otherwise all
    ranks write into one folder, and every rank takes in the files that others have finished.
    """

    def __init__(self, ranks: Ranks, store: ClientStore, *, owned: bool) -> None:
        self._ranks, self._store, self._owned = ranks, store, owned
        self._prefix = f"rank{ranks.rank}/" if owned else ""
        self._owned_contents: dict[int, Contents] = {}

    def exchange(self, round_: int) -> None:
        """All ranks, after the training of a round: tell the others which files hold today's states."""
        failed: Exception | None = None
        known: dict[str, Contents] = {}
        try:
            # A run that is stopped before the end of the round saves a checkpoint of the round before.
            known = {str(end): self._with_prefix(self._store.contents(end)) for end in (round_, round_ + 1)}
        except Exception as error:
            failed = error
        everyone = self._ranks.gather(describe_error(failed) if failed else known)
        raise_first_error(self._ranks, everyone, failed)
        together: dict[int, Contents] = {
            end: {name: digest for files in everyone for name, digest in files[str(end)].items()}
            for end in (round_, round_ + 1)
        }
        if self._owned:
            self._owned_contents = together
        else:
            self._store.add_files(together[round_ + 1])

    def contents(self, round_: int) -> Contents:
        """The files of all ranks that a checkpoint of this round needs, as of the last training."""
        return self._owned_contents.get(round_, {}) if self._owned else self._store.contents(round_)

    def check(self, round_: int, contents: Contents) -> None:
        """All ranks: go on from the checkpoint of a round with exactly these files."""
        failed: Exception | None = None
        prefix = self._prefix
        digests = {name.removeprefix(prefix): digest for name, digest in contents.items() if name.startswith(prefix)}
        try:
            self._store.check(round_, digests)
        except Exception as error:
            failed = error
        everyone = self._ranks.gather(describe_error(failed) if failed else {})
        raise_first_error(self._ranks, everyone, failed)
        self._owned_contents = {round_: contents}

    def _with_prefix(self, contents: Contents) -> Contents:
        return {f"{self._prefix}{name}": digest for name, digest in contents.items()}
