"""A folder with one file for each client: a federation without a partition."""

from pathlib import Path
from typing import Literal

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.core.words import plural
from fedblade.data._client_values import client_values, naming
from fedblade.data._clients import ClientData
from fedblade.data._own_samples import OwnSamples
from fedblade.data.client_parts import EXPECTED, checked_file, parts_of, read_parts
from fedblade.data.own_files import ReadSettings


def client_files(path: str = "") -> dict[str, tuple[Path, Path | None]]:
    """The training file and the test file of each client in a folder, by name in ascending order.

    A client is a file (its name without the ending), or a folder with the files `train` and `test`. Hidden files do not
    count; any other file is refused.
    """
    if not path:
        raise Misconfigured("dataset 'clients' needs a folder: --set dataset.path=FOLDER.")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        state = "is a file" if folder.exists() else "does not exist"
        raise Misconfigured(f"dataset.path '{path}' {state}; expected a folder with {EXPECTED}.")
    found: dict[str, tuple[Path, Path | None]] = {}
    for entry in sorted(folder.iterdir(), key=lambda path: (path.name if path.is_dir() else path.stem, path.name)):
        if entry.name.startswith("."):
            continue
        name = entry.name if entry.is_dir() else entry.stem
        if name in found:
            raise Misconfigured(f"'{folder}' has several files for client '{name}'; expected one. Remove the others.")
        found[name] = parts_of(entry) if entry.is_dir() else (checked_file(folder, entry), None)
    if len(found) < 2:
        raise Misconfigured(
            f"'{folder}' has {plural(len(found), 'client')}; expected at least two: {EXPECTED}. To divide one file "
            f"among clients, give it as dataset=files."
        )
    return found


def _names(path: str = "", **_settings: object) -> tuple[str, ...]:
    """The names of the clients in a folder, whatever the settings of the files are."""
    return tuple(client_files(path))


@datasets.register(clients=_names)
def clients(
    path: str = "",
    label: str = "label",
    missing: Literal["refuse", "fill"] = "refuse",
    drop: str = "",
    categories: str = "",
) -> ClientData:
    """A folder with one file for each client: north.csv, south.csv; or south/train.csv and south/test.csv.

    The names of the files are the names of the clients. Of a client without test samples, a fifth is held out. Files
    and the other settings are those of dataset `files`; tables of all clients are encoded alike, by sums over all of
    their training samples.
    """
    settings, values = ReadSettings.of(label, missing, drop, categories), {}
    for name, parts in client_files(path).items():
        with naming(name):
            values[name] = read_parts(parts, settings)
    return ClientData(client_values(values), _source(list(values.values())))


def _source(values: list[OwnSamples]) -> str:
    """What the samples were read from, such as "3 files (arrays in an .npz file)"."""
    return f"{plural(len(values), 'client')} ({', '.join(dict.fromkeys(samples.source for samples in values))})"
