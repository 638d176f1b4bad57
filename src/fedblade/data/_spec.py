"""The description of a data set, and where its files are looked for.

Places are an explicit path, $FEDBLADE_DATA, the user's cache and a package manager's folder.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.data._source import Source

Format = Callable[[Path], Source | None]
VARIABLE = "FEDBLADE_DATA"
"""The environment variable with a folder in which data sets are looked for, each in a folder with its name."""
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class Hub:
    """A public copy of a data set: the repository and patterns (of `fnmatch`) for the files that are needed."""

    repository: str
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class Spec:
    """A data set and everything needed to find, read and normalise it.

    `formats` are tried in order on a folder; a format gives a source, or None if the files have another format.
    `wanted` completes the sentence "expected …" and `how` says where the files come from. `folders` are further names
    of the data set's folder, `system` folders of a package manager. `published` holds the sizes of both parts. With
    `measured`, mean and deviation are computed from the training samples. `request` names the user's settings that
    select samples: a decoded copy is used again only for an equal request.
    """

    name: str
    formats: tuple[Format, ...]
    wanted: str
    how: str
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    unit: float = 255.0
    margin: int = 0
    hub: Hub | None = None
    folders: tuple[str, ...] = ()
    system: tuple[Path, ...] = ()
    published: tuple[int, int] | None = None
    measured: bool = False
    request: str = ""


SPECS: dict[str, Spec] = {}


def declare(spec: Spec) -> Spec:
    """Add a data set to those that `fedblade data` looks for."""
    SPECS[spec.name] = spec
    return spec


def cache_root() -> Path:
    """The user's cache: $XDG_CACHE_HOME/fedblade, by default ~/.cache/fedblade."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say to ignore relative paths.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "fedblade"


def decoded_root() -> Path:
    """Folder of the decoded copies."""
    return cache_root() / "decoded"


def _candidates(spec: Spec) -> list[Path]:
    names = (spec.name, *spec.folders)
    given = os.environ.get(VARIABLE, "")
    if given and not Path(given).expanduser().is_dir():
        raise Misconfigured(
            f"{VARIABLE} is '{given}', which is not a folder; expected a folder with one subfolder per data set. "
            f"Set it to an existing folder or unset it."
        )
    roots = [Path(given).expanduser()] if given else []
    return [root / name for root in (*roots, cache_root()) for name in names] + list(spec.system)


def find_place(spec: Spec, path: str = "") -> Path | None:
    """The folder with the files of a data set, or None if no folder has them. An explicit path must exist."""
    if path:
        place = Path(path).expanduser()
        if not place.exists():
            raise Misconfigured(f"dataset.path '{path}' does not exist; expected {spec.wanted}. Give an existing path.")
        return place
    return next((place for place in _candidates(spec) if _holds_something(place)), None)


def _holds_something(place: Path) -> bool:
    """Whether a folder may hold data. An empty folder is passed over; one that cannot be listed is not."""
    try:
        return next(place.iterdir(), None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def recognise(spec: Spec, place: Path) -> Source:
    """The source in a folder, in the first format that fits."""
    for read in spec.formats:
        source = read(place)
        if source is not None:
            return source
    found = sorted(entry.name for entry in place.iterdir())[:5] if place.is_dir() else [place.name]
    raise Misconfigured(
        f"'{place}' does not hold dataset '{spec.name}': found {', '.join(found) or 'nothing'}; "
        f"expected {spec.wanted}. {spec.how}"
    )


def missing(spec: Spec) -> Misconfigured:
    """The error for data that are in no folder: what is missing, where it was looked for, and how to get it."""
    looked = ", ".join(str(place) for place in _candidates(spec))
    unset = "" if os.environ.get(VARIABLE) else f" ({VARIABLE} is not set)"
    online = f" Or get it from the hub: fedblade data {spec.name} --download" if spec.hub else ""
    return Misconfigured(
        f"dataset '{spec.name}' is not on this machine: looked for {spec.wanted} in {looked}{unset}. {spec.how}{online}"
    )
