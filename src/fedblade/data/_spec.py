"""What is known about a data set besides its pixels: where it may lie, in which formats, and how to get it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedblade.data._source import Source

Format = Callable[[Path], Source | None]
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class Hub:
    """A public copy: repository and the files of it that are needed (patterns as of `fnmatch`)."""

    repository: str
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class Spec:
    """A data set and everything needed to find, read and normalise it.

    `formats` are tried in order on a folder; each gives a source, or None if the files are not of its kind. `wanted`
    completes the sentence "expected …" and `how` says where the files come from. `folders` are further names below the
    data folder, `system` places where a package manager puts the files. `published` holds the sizes of both parts.
    `request` names the settings of the user's that choose among the samples of a place, so that an earlier decoded
    copy is used for the same request only.
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
    """Make a data set known to `fedblade data`, which lists what is found without reading it."""
    SPECS[spec.name] = spec
    return spec
