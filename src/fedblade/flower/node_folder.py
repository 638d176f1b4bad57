"""The folder of a node: its key, its settings, the files of own parts, and what its processes write."""

import dataclasses
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_atomic
from fedblade.flower.app_folder import PARTS
from fedblade.flower.certificates import write_node_key
from fedblade.flower.digests import is_digest

_SETTINGS = "node.toml"


@dataclass(frozen=True)
class NodeFolder:
    """The folder of a node; the path is absolute."""

    path: Path

    @property
    def local(self) -> Path:
        """The folder by which the processes of the node are found."""
        return self.path

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.path / "logs"

    @property
    def home(self) -> Path:
        """The value of `FLWR_HOME` for the node's processes."""
        return self.path / "home"

    @property
    def settings(self) -> Path:
        """The file of the node's settings."""
        return self.path / _SETTINGS

    @property
    def key(self) -> Path:
        """The private key, which never leaves this folder."""
        return self.path / "node.key"

    @property
    def public_key(self) -> Path:
        """The public key, which the coordinator admits."""
        return self.path / "node.key.pub"

    @property
    def authority(self) -> Path:
        """The certificate of the coordinator's authority."""
        return self.path / "ca.crt"

    @property
    def secret(self) -> Path:
        """The secret that the SuperNode and its executor share."""
        return self.path / "secret"

    @property
    def states(self) -> Path:
        """The states of the node's clients."""
        return self.path / "state"

    @property
    def own_parts(self) -> Path:
        """Files with methods, models and other parts that the node's operator allows."""
        return self.path / PARTS


@dataclass(frozen=True)
class NodeSettings:
    """The settings of a node, kept in `node.toml`.

    `clients` are the clients that it speaks for, such as `0` or `0,4,8`. `data` is a file with a table or arrays, a
    folder with such files called `train` and `test`, `FILE.py:function` or `module:function`; without it, every client
    uses its share of the run's data set. `pin` is the digest of the only app that the node serves, and `allow` has the
    digests of the files of own parts that it runs. `sums` is the file of sums that the hospital gave away: with it, the
    node refuses to read its data in another way. An `insecure` node uses neither encryption nor its key.
    """

    coordinator: str
    clients: str
    pin: str
    allow: list[str] = field(default_factory=list)
    data: str | None = None
    device: str = "auto"
    insecure: bool = False
    sums: str | None = None


def make_node(folder: NodeFolder, settings: NodeSettings, authority: Path | None) -> None:
    """Make the folder of a node with a key of its own; nobody else may read it. An insecure node has no authority."""
    folder.own_parts.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.path.chmod(0o700)
    if authority is not None:
        shutil.copyfile(authority, folder.authority)
        write_node_key(folder.key)
    write_settings(folder, settings)


def write_settings(folder: NodeFolder, settings: NodeSettings) -> None:
    """Store the settings of a node."""
    table = {key: value for key, value in dataclasses.asdict(settings).items() if value is not None}
    write_atomic(folder.settings, tomli_w.dumps(table))


def read_settings(folder: NodeFolder) -> NodeSettings:
    """The checked settings of the node in a folder."""
    try:
        table = tomllib.loads(folder.settings.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Misconfigured(
            f"'{folder.path}' is not the folder of a node: there is no {_SETTINGS}. Make one: fedblade flower join"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"'{folder.settings}' is not valid TOML: {error}. Correct the file.") from error
    return check_settings(table, folder.settings)


def check_settings(table: dict[str, Any], source: object) -> NodeSettings:
    """Settings from a table; refuses unknown keys, wrong types and digests that are none."""
    known = {field.name: field for field in dataclasses.fields(NodeSettings)}
    for key, value in table.items():
        if key not in known:
            raise Misconfigured(f"'{source}' has an unknown key '{key}'; expected {', '.join(known)}.")
        expected = {"allow": list, "insecure": bool}.get(key, str)
        if not isinstance(value, expected):
            raise Misconfigured(f"'{source}' has {key} = {value!r}; expected a {expected.__name__}.")
    missing = [key for key in ("coordinator", "clients", "pin") if key not in table]
    if missing:
        raise Misconfigured(f"'{source}' has no '{missing[0]}'. Write it into the file, or join again.")
    for digest in (table["pin"], *table.get("allow", [])):
        if not (isinstance(digest, str) and is_digest(digest)):
            raise Misconfigured(
                f"'{source}' has {digest!r}, which is not a SHA-256 digest (64 of the digits 0-9 and a-f). "
                f"'fedblade flower digest APP' prints digests."
            )
    if "sums" in table and "data" not in table:
        raise Misconfigured(
            f"'{source}' has sums = '{table['sums']}' and no data; expected the table that has these sums. Give both, "
            f"or leave sums out."
        )
    client_numbers(table["clients"], f"'{source}'")
    return NodeSettings(**table)


def client_numbers(clients: str, source: str) -> tuple[int, ...]:
    """The numbers of a node's clients, from a text such as `0` or `0,4,8`."""
    try:
        return tuple(int(client) for client in clients.split(","))
    except ValueError:
        raise Misconfigured(
            f"{source} has clients = '{clients}'; expected the numbers of clients, such as 0 or 0,3."
        ) from None
