"""What a node's operator allows to run: the configuration of the pinned app, and files of own parts by their digests.

The configuration of a run arrives with every request. A node uses it only if it equals the configuration in the pinned
app, which the operator could read before pinning it; the choice of cohorts is in no request. If the configuration names
own code, the code is the operator's copy, in the node's folder, and its digest must be in the node's settings. Code
never travels to a node.
"""

import importlib.machinery
import io
import sys
import tomllib
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

from fedblade.config.run_config import complete_config
from fedblade.core.errors import Misconfigured
from fedblade.core.fixed_source import FixedSource, fix_source
from fedblade.flower._node_errors import NodeError
from fedblade.flower._node_setup import Facts
from fedblade.flower.app import split_tables
from fedblade.flower.app_folder import CONFIG, PARTS
from fedblade.flower.digests import digest_of
from fedblade.flower.node_folder import NodeFolder, read_settings


class Approval:
    """Approves the requests of a run whose app is the pinned one. `agreement` is the one in this app."""

    def __init__(self, fab: bytes, folder: NodeFolder, allow: Collection[str]) -> None:
        with zipfile.ZipFile(io.BytesIO(fab)) as app:  # these are the bytes that the operator has pinned
            tables = tomllib.loads(app.read(CONFIG).decode())
        # Requests do not say how cohorts are chosen: the coordinator chooses alone, and its code for it runs there.
        tables.pop("participation", None)
        self._references = set(_references(tables))
        for reference in sorted(self._references):
            _check_reference(reference, folder, allow)
        config, deployment = split_tables(tables)
        self.agreement = deployment.agreement
        self._config, self._data_settings = config.table(), (deployment.num_classes, deployment.data)
        self._approved: list[Any] = []

    def check(self, facts: Facts) -> None:
        """Refuse a request whose configuration is not that of the pinned app."""
        config, data_settings = facts["config"], (facts["num_classes"], facts["data"])
        if (config, data_settings) in self._approved:
            return
        # A configuration with other references is not even completed, because that imports what it names.
        known = data_settings == self._data_settings and self._references.issuperset(_references(config))
        if not known or complete_config(dict(config)).table() != self._config:
            raise NodeError(
                "not pinned",
                "the configuration of this request is not the one in the app that this node has pinned. Start the run "
                "with the pinned app, or pin the new app on all nodes.",
            )
        self._approved.append((config, data_settings))


def serve_own_parts(folder: NodeFolder) -> None:
    """From now on Python finds modules of own parts in the node's folder, and only files whose digests are allowed."""
    sys.meta_path.insert(0, _OwnParts(folder))


def _references(value: Any) -> Iterator[str]:
    """Every reference to code in a configuration: each one is a string with a colon."""
    if isinstance(value, str):
        yield from (part for part in value.split("+") if ":" in part)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _references(item)


def _check_reference(reference: str, folder: NodeFolder, allow: Collection[str]) -> None:
    """Refuse a reference to a file whose digest is not allowed, without importing anything."""
    source = reference.rpartition(":")[0]
    if source.endswith(".py"):
        file = (folder.path / source).resolve()
        fix_source(file, _allowed_content(file, reference, allow))
        return
    if source.startswith(f"{PARTS}."):
        files = [folder.own_parts / f"{source.partition('.')[2]}.py"]
    else:
        files = list(_files_of_module(source, reference))
    for file in files:
        _allowed_content(file, reference, allow)


def _files_of_module(name: str, reference: str) -> Iterator[Path]:
    """The files that an import of an installed module runs first: those of its packages, and its own."""
    places: Sequence[str] | None = None
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:length]), places)
        if spec is None:
            raise Misconfigured(f"the run names '{reference}', and this node has no module '{name}'. Install it.")
        places = spec.submodule_search_locations
        if spec.origin is not None:
            yield Path(spec.origin)


def _allowed_content(file: Path, name: str, allow: Collection[str]) -> bytes:
    """The content of a file whose digest is allowed."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise Misconfigured(
            f"the run needs '{name}', and this node has no file '{file.name}' for it. Put the file into the folder "
            f"{PARTS} of the node, and its digest into 'allow' in node.toml."
        ) from error
    digest = digest_of(content)
    if digest not in allow and content.strip():
        raise Misconfigured(
            f"the run needs '{name}', and the file '{file.name}' of this node has the digest {digest}, which is not "
            f"allowed. Read the file; if it may run, put the digest into 'allow' in node.toml."
        )
    return content


class _OwnParts(MetaPathFinder):
    """Finds the package of own parts in a node's folder."""

    def __init__(self, folder: NodeFolder) -> None:
        self._folder = folder

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        """Where the module is; None for all modules that are no own parts."""
        if fullname == PARTS:
            return ModuleSpec(fullname, None, is_package=True)
        if not fullname.startswith(f"{PARTS}."):
            return None
        file = self._folder.own_parts / f"{fullname.partition('.')[2]}.py"
        content = _allowed_content(file, fullname, read_settings(self._folder).allow)
        return spec_from_file_location(fullname, file, loader=FixedSource(content, file))
