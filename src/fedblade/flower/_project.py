"""A ready Flower app around a configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import RunConfig
from fedblade.config.schema import NAMED
from fedblade.config.validation import plain
from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_atomic
from fedblade.flower._app import FILE, TABLE, Deployment, split_tables
from fedblade.flower._place import OWN
from fedblade.flower._server import check_deployable
from fedblade.presets.catalogue import read_config
from fedblade.runs import folder_name

PARTS = "own_parts"
"""Package of an app with the user's files that parts of the run are taken from; Flower packs no folder `parts`."""
_LONGEST_NAME = 40
_PYPROJECT = """\
[project]
name = "{name}"
version = "1.0.0"
description = "{method} as a federation of {clients} clients"
license = "Apache-2.0"
# Flower would install what stands here while a run starts. fedblade is installed with the SuperLink and the nodes.
dependencies = []

[tool.flwr.app]
publisher = "fedblade"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

[tool.flwr.app.config]
# Folder of the run where the SuperLink runs, and whether the run in it goes on.
run-dir = "runs/flower"
resume = false
"""
_SERVER = '''\
"""The server of the run that fedblade.toml describes."""

from pathlib import Path

from fedblade.flower.server_app import server_app

app = server_app(Path(__file__).parent)
'''
_CLIENT = '''\
"""What every node does: its configuration says for which clients, and with which data."""

from fedblade.flower.client_app import app

__all__ = ["app"]
'''
_README = """\
# {method} with Flower

`fedblade.toml` is the run ({clients} clients, {rounds} rounds); its table `[flower]` says on which terms nodes take
part. All other files stay as they are. Files of your own that the run needs (a method, a model) are in `{parts}`; a
module that they import is installed everywhere, or lies beside this file.

## Rehearse on this machine

    fedblade flower up .
    fedblade flower run .
    fedblade flower status .
    fedblade flower down .

`up` starts a SuperLink and nodes that share the {clients} clients, over TLS and with node keys; everything it writes
is in `{own}`. While it is up, `FLWR_HOME={own}/home flwr run .` starts a run too.

## Deploy

    fedblade flower certs certs --host flower.example.org --nodes {clients}

says what goes to whom. Where nodes have data of their own, set `data = "nodes"` (`flower.data`) and `num_classes`, the
number of classes of all of them together, under `[flower]` in `fedblade.toml`; `fedblade flower up` is for `data =
"shares"` alone. Node keys are registered with `flwr supernode register`, nodes are started with `flower-supernode
--node-config 'clients="0" data="/path/to/samples.npz"'`, the run with `flwr run .`, which returns 0 even for a run that
fails: `flwr list` tells. Set `FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1` everywhere.
"""


def make_app(folder: Path, source: str | None, overrides: Mapping[str, Any]) -> tuple[RunConfig, Deployment]:
    """Write an app for a preset or file with changes into an empty or new folder; keys `flower.…` are its terms."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Misconfigured(f"'{folder}' is not an empty folder. Choose an empty or new one for the app.")
    config, deployment = app_config(source, overrides)
    check_deployable(config)
    tables, own_files = _with_own_files(config.table())
    facts = {
        "name": _project_name(config.method.name),
        "method": tables["method"]["name"],
        "clients": config.federation.num_clients,
        "rounds": config.federation.rounds,
        "own": OWN,
        "parts": PARTS,
    }
    files: dict[str, str | bytes] = {
        "pyproject.toml": _PYPROJECT.format(**facts),
        FILE: tomli_w.dumps(tables | {TABLE: plain(deployment)}),
        "server_app.py": _SERVER,
        "client_app.py": _CLIENT,
        "README.md": _README.format(**facts),
        # Flower leaves out of the app what git is told to leave out.
        ".gitignore": f"{OWN}/\ncerts/\nruns/\n__pycache__/\n",
    } | own_files
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            write_atomic(folder / name, content)
    except OSError as error:
        raise Misconfigured(f"cannot write the app to '{folder}': {error.strerror}. Choose another folder.") from error
    return config, deployment


def app_config(source: str | None, overrides: Mapping[str, Any]) -> tuple[RunConfig, Deployment]:
    """The run and the terms of its deployment that a preset or file and changes ask for."""
    prefix = f"{TABLE}."
    given = read_config(source)
    terms = given.pop(TABLE, {})
    if not isinstance(terms, Mapping):
        raise Misconfigured(f"{TABLE} = {terms!r} is not a table; expected keys under [{TABLE}].")
    changes = {key.removeprefix(prefix): value for key, value in overrides.items() if key.startswith(prefix)}
    raw = apply_overrides(given, {key: value for key, value in overrides.items() if not key.startswith(prefix)})
    raw.pop("seeds", None)
    return split_tables(raw | {TABLE: {**terms, **changes}})


def _with_own_files(table: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The tables with parts from files of the user's as modules of the app, and these files by their new names.

    A path means nothing on another machine, while modules of an app are found wherever Flower runs it.
    """
    found: dict[str, Path] = {}

    def moved(name: str) -> str:
        place, _, rest = name.rpartition(":")
        if not place.endswith(".py"):
            return name
        path = Path(place).resolve()
        if not path.stem.isidentifier() or path.stem == "__init__":
            raise Misconfigured(f"'{path}' cannot be a module of the app. Rename the file, such as my_method.py.")
        other = found.setdefault(path.stem, path)
        if other != path:
            raise Misconfigured(f"'{other}' and '{path}' have the same name, and the app holds both. Rename one.")
        return f"{PARTS}.{path.stem}:{rest}"

    named = {kind: table[kind] | {"name": moved(table[kind]["name"])} for kind in NAMED}
    evaluation = table["evaluation"] | {"metrics": [moved(name) for name in table["evaluation"]["metrics"]]}
    files = {f"{PARTS}/{stem}.py": path.read_bytes() for stem, path in found.items()}
    package = {f"{PARTS}/__init__.py": b'"""Parts of the run from files of the user\'s."""\n'} if files else {}
    return table | named | {"evaluation": evaluation}, package | files


def _project_name(method: str) -> str:
    """A name as Flower allows it: letters, digits and hyphens."""
    plain_name = "".join(c if c.isascii() and c.isalnum() else "-" for c in folder_name(method))
    return f"fedblade-{plain_name}"[:_LONGEST_NAME].rstrip("-")
