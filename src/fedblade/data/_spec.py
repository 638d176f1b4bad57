"""The description of a data set: where its files may be, in which formats, and how to get them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedblade.data._source import Source

Format = Callable[[Path], Source | None]
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
