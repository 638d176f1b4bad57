"""Downloads from the Hugging Face hub, with the hub's library, and only if the user allowed downloads."""

import contextlib
import fnmatch
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.extras import need
from fedblade.data._digest import hash_file
from fedblade.data._spec import Hub

_allowed: ContextVar[bool] = ContextVar("downloads_allowed", default=False)


@contextlib.contextmanager
def allow_downloads() -> Iterator[None]:
    """Allow the download of data sets that are not on this machine while the body of the `with` statement runs."""
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


def downloads_allowed() -> bool:
    """Whether the user allowed downloads."""
    return _allowed.get()


def download(name: str, hub: Hub, target: Path) -> None:
    """Download the files of a data set into the folder `target`, which appears after every checksum was checked.

    An interrupted download continues where it stopped: complete files are kept in a folder beside `target`.
    """
    library = need("huggingface_hub", "data", "huggingface_hub", f"downloading dataset '{name}'")
    partial = target.with_name(f"{target.name}.partial")
    try:
        info = library.HfApi().dataset_info(hub.repository, files_metadata=True)
        wanted = [any(fnmatch.fnmatch(file.rfilename, pattern) for pattern in hub.patterns) for file in info.siblings]
        files = [file for file, is_wanted in zip(info.siblings, wanted, strict=True) if is_wanted]
        for file in files:
            library.hf_hub_download(
                hub.repository, file.rfilename, repo_type="dataset", revision=info.sha, local_dir=partial
            )
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise Misconfigured(
            f"downloading dataset '{name}' from {hub.repository} failed: {type(error).__name__}: {reason}. Check the "
            f"connection and repeat the command; the download continues where it stopped."
        ) from error
    if not files:
        raise Misconfigured(
            f"{hub.repository} no longer has files like {', '.join(hub.patterns)}. Download the data by hand and set "
            f"dataset.path to their folder."
        )
    for file in files:
        _check(partial / file.rfilename, file, hub)
    partial.rename(target)


def _check(path: Path, remote: Any, hub: Hub) -> None:
    """Compare a file with the SHA-256 that the hub stores for every large file."""
    if remote.lfs is None or hash_file(path) == remote.lfs.sha256:
        return
    path.unlink()
    raise Misconfigured(
        f"'{remote.rfilename}' from {hub.repository} arrived damaged: its SHA-256 is not {remote.lfs.sha256}. The file "
        f"was removed; repeat the command."
    )
