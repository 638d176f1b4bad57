"""Downloads from the Hugging Face hub, through its own library, and only when the user allowed it."""

import contextlib
import fnmatch
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.data._digest import hash_file
from fedblade.data._extras import need
from fedblade.data._spec import Hub

_allowed: ContextVar[bool] = ContextVar("downloads_allowed", default=False)


@contextlib.contextmanager
def allow_downloads() -> Iterator[None]:
    """Let data sets that are not on this machine be fetched while the body runs."""
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


def downloads_allowed() -> bool:
    """Whether the user allowed going online."""
    return _allowed.get()


def download(name: str, hub: Hub, target: Path) -> None:
    """Fetch the files of a data set into `target`, which appears when every checksum agrees.

    An interrupted download goes on where it stopped: files that are complete are kept beside the target.
    """
    library = need("huggingface_hub", "huggingface_hub", f"downloading dataset '{name}'")
    partial = target.with_name(f"{target.name}.partial")
    try:
        info = library.HfApi().dataset_info(hub.repository, files_metadata=True)
        files = [each for each in info.siblings if _wanted(each.rfilename, hub)]
        for each in files:
            library.hf_hub_download(
                hub.repository, each.rfilename, repo_type="dataset", revision=info.sha, local_dir=partial
            )
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise Misconfigured(
            f"downloading dataset '{name}' from {hub.repository} failed: {type(error).__name__}: {reason}. Check the "
            f"connection and repeat the command; it goes on where it stopped."
        ) from error
    if not files:
        raise Misconfigured(
            f"{hub.repository} no longer has files like {', '.join(hub.patterns)}. Download the data by hand and give "
            f"their folder as dataset.path."
        )
    for each in files:
        _check(partial / each.rfilename, each, hub)
    partial.rename(target)


def _wanted(file: str, hub: Hub) -> bool:
    return any(fnmatch.fnmatch(file, pattern) for pattern in hub.patterns)


def _check(path: Path, remote: Any, hub: Hub) -> None:
    """Compare with the SHA-256 that the hub keeps of every large file."""
    if remote.lfs is None or hash_file(path) == remote.lfs.sha256:
        return
    path.unlink()
    raise Misconfigured(
        f"'{remote.rfilename}' from {hub.repository} arrived damaged: its SHA-256 is not {remote.lfs.sha256}. It was "
        f"removed; repeat the command."
    )
