"""Makes the folder of a node on a hospital's machine: with a key of its own, of which only the public half travels."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.data.client_parts import is_client_data, parts_of
from fedblade.data.own_files import ENDINGS, is_own_file
from fedblade.flower._public_keys import read_public_key
from fedblade.flower._x509 import load_certificate
from fedblade.flower.node_folder import NodeFolder, NodeSettings, check_settings, make_node
from fedblade.flower.sums_file import read_sums_file


@dataclass(frozen=True)
class Joined:
    """A node that was made: the file with its public key, and the fingerprint by which people compare it."""

    public_key: Path
    fingerprint: str


def join(folder: NodeFolder, settings: NodeSettings, authority: Path) -> Joined:
    """Make a node; an existing node is not changed."""
    for file in (folder.key, folder.settings):
        if file.exists():
            raise Misconfigured(
                f"'{folder.path}' already holds a node ({file.name}). Edit its settings in '{folder.settings.name}', "
                f"or choose another folder for a new node."
            )
    check_settings({key: value for key, value in vars(settings).items() if value is not None}, "the new node")
    _check_address(settings.coordinator)
    if load_certificate(_existing("--ca", authority).read_bytes()) is None:
        raise Misconfigured(f"--ca: '{authority}' is no certificate in PEM format. Give the coordinator's ca.crt.")
    make_node(folder, settings, authority)
    return Joined(folder.public_key, read_public_key(folder.public_key).fingerprint)


def data_source(given: str) -> str:
    """A node's data as the settings name them: by absolute paths, so that the current folder does not matter.

    A function of a module in the current folder is named by the file of the module.
    """
    if is_own_file(given):
        return str(_existing("--data", Path(given)))
    if is_client_data(given):
        parts_of(given)
        return str(Path(given).expanduser().resolve())
    module, colon, function = given.rpartition(":")
    if not colon or not function.isidentifier():
        raise Misconfigured(
            f"--data {given} is neither an {' or '.join(ENDINGS)} file nor a folder with files called train and "
            f"test, nor FILE.py:function nor module:function. Give one of them."
        )
    file = Path(module if module.endswith(".py") else f"{module.replace('.', '/')}.py")
    if module.endswith(".py") or file.is_file():
        return f"{_existing('--data', file)}:{function}"
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise Misconfigured(f"--data {given}: there is neither '{file}' here nor an installed module '{module}'.")
    return given


def sums_source(file: Path) -> str:
    """The file of sums that a hospital gave away, by its absolute path; refuses a file that is none."""
    found = _existing("--sums", file)
    read_sums_file(found)
    return str(found)


def _existing(option: str, file: Path) -> Path:
    if not file.is_file():
        raise Misconfigured(f"{option}: '{file}' does not exist. Give the path of a file on this machine.")
    return file.resolve()


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise Misconfigured(f"--coordinator {address} is no address. Give a host and a port, such as HOST:8443.")
