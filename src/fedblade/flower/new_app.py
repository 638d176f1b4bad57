"""Writes a ready Flower app for a configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import RunConfig
from fedblade.config.schema import NAMED
from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_atomic
from fedblade.flower._server import check_deployable
from fedblade.flower._toml_edit import with_agreement
from fedblade.flower.app import TABLE, Deployment, split_tables
from fedblade.flower.app_folder import CONFIG, LOCAL, PARTS
from fedblade.presets.catalogue import read_config
from fedblade.runs import folder_name

_MAX_NAME = 40
_PYPROJECT = """\
[project]
name = "{name}"
version = "1.0.0"
description = "{method} as a federation of {clients} clients"
license = "Apache-2.0"
# Flower would install the packages listed here when a run starts. Install fedblade with the SuperLink and the nodes.
dependencies = []

[tool.flwr.app]
publisher = "fedblade"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

[tool.flwr.app.config]
# Folder of the run on the machine of the SuperLink, and whether the run in it is resumed.
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
"""The client of the run; the configuration of a node names its clients and its data."""

from fedblade.flower.client_app import app

__all__ = ["app"]
'''
_README = """\
# {method} with Flower

`fedblade.toml` describes the run ({clients} clients, {rounds} rounds); its table `[flower]` has the settings
of the deployment. Do not change the other files. Your own files that the run needs (a method, a model) are in
`{parts}`. Modules that they import must be installed everywhere, or be put into `{parts}` and be imported as
`{parts}.NAME`.

## Try it on this machine

    fedblade flower up .
    fedblade flower run .
    fedblade flower status .
    fedblade flower down .

`up` starts a local federation: a SuperLink and nodes that share the {clients} clients, with TLS and node keys. All its
files are in `{local}`.

## Deploy

On the coordinator's machine:

    fedblade flower certs certs --host flower.example.org
    fedblade flower digest .
    fedblade flower serve . --host 0.0.0.0 --certs certs

On the machine of each node, with `certs/ca.crt` and the first digest that was printed:

    fedblade flower join node --coordinator flower.example.org:8443 --ca ca.crt --client 0 --pin DIGEST
    fedblade flower node node

and on the coordinator's machine, with the public key that the node has made:

    fedblade flower admit node.key.pub . --client 0
    fedblade flower run . --out results

If nodes have their own data, set `data = "nodes"` (`flower.data`) and `num_classes`, the number of classes of all nodes
together, under `[flower]` in `fedblade.toml`, and give `join` the option `--data`; `fedblade flower up` is only for
`data = "shares"`. If the data are tables, or labels are names, every node's owner first gives sums of its file
(`fedblade flower sums FILE --client 0 --seed N --out FILE.json`), and `fedblade flower agree . FILE.json…` writes the
agreement of all into `fedblade.toml`, before the digest is pinned. A node runs only the app whose digest it has pinned.
Files in `{parts}` do not travel: a node needs
its own copies in its folder `{parts}`, and their digests in the list `allow` of `node.toml`.
"""


def make_app(folder: Path, source: str | None, overrides: Mapping[str, Any]) -> tuple[RunConfig, Deployment]:
    """Write an app for a preset or file with overrides into an empty or new folder; `flower.…` sets the deployment."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Misconfigured(f"'{folder}' is not an empty folder. Choose an empty or new one for the app.")
    config, deployment = app_config(source, overrides)
    check_deployable(config, deployment)
    tables, user_files = _with_user_files(_with_whole_path(config.table()))
    facts = {
        "name": _project_name(config.method.name),
        "method": tables["method"]["name"],
        "clients": config.federation.num_clients,
        "rounds": config.federation.rounds,
        "local": LOCAL,
        "parts": PARTS,
    }
    files: dict[str, str | bytes] = {
        "pyproject.toml": _PYPROJECT.format(**facts),
        CONFIG: _config_text(tables, deployment, folder / CONFIG),
        "server_app.py": _SERVER,
        "client_app.py": _CLIENT,
        "README.md": _README.format(**facts),
        # Flower does not pack files that .gitignore lists.
        ".gitignore": f"{LOCAL}/\ncerts/\nruns/\n__pycache__/\n",
    } | user_files
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            write_atomic(folder / name, content)
    except OSError as error:
        raise Misconfigured(f"cannot write the app to '{folder}': {error.strerror}. Choose another folder.") from error
    return config, deployment


def _config_text(tables: dict[str, Any], deployment: Deployment, path: Path) -> str:
    """The configuration file; an agreement is a block of its own, which `fedblade flower agree` can replace."""
    text = tomli_w.dumps(tables | {TABLE: deployment.model_dump()})
    return text if deployment.agreement is None else with_agreement(text, path, {}, deployment.agreement.table())


def app_config(source: str | None, overrides: Mapping[str, Any]) -> tuple[RunConfig, Deployment]:
    """The run and its deployment, from a preset or file with overrides."""
    prefix = f"{TABLE}."
    given = read_config(source)
    table = given.pop(TABLE, {})
    if not isinstance(table, Mapping):
        raise Misconfigured(f"{TABLE} = {table!r} is not a table; expected keys under [{TABLE}].")
    changes = {key.removeprefix(prefix): value for key, value in overrides.items() if key.startswith(prefix)}
    raw = apply_overrides(given, {key: value for key, value in overrides.items() if not key.startswith(prefix)})
    raw.pop("seeds", None)
    return split_tables(raw | {TABLE: {**table, **changes}})


def _with_whole_path(table: dict[str, Any]) -> dict[str, Any]:
    """The tables with the absolute path of the data: processes of a local federation have other current folders."""
    dataset = table["dataset"]
    given = Path(str(dataset.get("path", ""))).expanduser()
    return table | {"dataset": dataset | {"path": str(given.resolve())}} if dataset.get("path") else table


def _with_user_files(table: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The tables with references to the user's files turned into modules of the app, and the files by their new names.

    A path is not valid on another machine, but Python finds the modules of an app wherever Flower runs it.
    """
    paths: dict[str, Path] = {}

    def as_module(name: str) -> str:
        file, _, attribute = name.rpartition(":")
        if not file.endswith(".py"):
            return name
        path = Path(file).resolve()
        if not path.stem.isidentifier() or path.stem == "__init__":
            raise Misconfigured(f"'{path}' cannot be a module of the app. Rename the file, such as my_method.py.")
        other = paths.setdefault(path.stem, path)
        if other != path:
            raise Misconfigured(f"'{other}' and '{path}' have the same name, and the app holds both. Rename one.")
        return f"{PARTS}.{path.stem}:{attribute}"

    named = {kind: table[kind] | {"name": as_module(table[kind]["name"])} for kind in NAMED}
    evaluation = table["evaluation"] | {"metrics": [as_module(name) for name in table["evaluation"]["metrics"]]}
    files = {f"{PARTS}/{stem}.py": path.read_bytes() for stem, path in paths.items()}
    package = {f"{PARTS}/__init__.py": b'"""The user\'s own files that the run needs."""\n'} if files else {}
    return table | named | {"evaluation": evaluation}, package | files


def _project_name(method: str) -> str:
    """A name that Flower allows: letters, digits and hyphens."""
    plain_name = "".join(c if c.isascii() and c.isalnum() else "-" for c in folder_name(method))
    return f"fedblade-{plain_name}"[:_MAX_NAME].rstrip("-")
