"""Office-Caltech10 and DomainNet: the same ten classes in several visual domains, as FedBN uses them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._dataset import Dataset
from fedblade.data._folders import labelled_pictures, picture_source, split_at_random
from fedblade.data._load import load
from fedblade.data._pictures import Fit, Picture
from fedblade.data._source import PARTS, PartName, Source
from fedblade.data._spec import Spec, declare

_TEST_SHARE = 0.2


@dataclass(frozen=True)
class _Domains:
    domains: tuple[str, ...]
    classes: tuple[str, ...]


_OFFICE = _Domains(
    ("amazon", "caltech", "dslr", "webcam"),
    (
        *("back_pack", "bike", "calculator", "headphones", "keyboard"),
        *("laptop_computer", "monitor", "mouse", "mug", "projector"),
    ),
)
_DOMAINNET = _Domains(
    ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    ("bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale", "windmill", "wine_glass", "zebra"),
)


def _read(layout: _Domains, root: Path) -> Source | None:
    """DOMAIN/CLASS/*.jpg, split by DOMAIN_train.txt and DOMAIN_test.txt where they exist."""
    if not any((root / domain).is_dir() for domain in layout.domains):
        return None
    parts: dict[PartName, list[Picture]] = {"train": [], "test": []}
    lists: list[Path] = []
    for domain in layout.domains:
        if not (root / domain).is_dir():
            raise Misconfigured(f"'{root}' has no domain folder '{domain}'; expected {', '.join(layout.domains)}.")
        files = {part: root / f"{domain}_{part}.txt" for part in PARTS}
        if all(file.is_file() for file in files.values()):
            lists += files.values()
            for part, file in files.items():
                parts[part] += _pictures_in_list(root, file, domain, layout.classes)
        else:
            train, test = split_at_random(labelled_pictures(root / domain, layout.classes, domain), _TEST_SHARE)
            parts["train"] += train
            parts["test"] += test
    return picture_source(root, parts, Fit(256, "squash"), layout.classes, lists=lists)


def _pictures_in_list(root: Path, file: Path, domain: str, classes: Sequence[str]) -> list[Picture]:
    """Pictures of the ten classes in a list with lines `domain/class/name.jpg number`; the number is not used."""
    number = {name: label for label, name in enumerate(classes)}
    pictures = []
    for line in file.read_text().splitlines():
        path = line.rpartition(" ")[0] or line
        parts = Path(path).parts
        if len(parts) != 3 or parts[0] != domain or ".." in parts:
            raise Misconfigured(f"'{file}' has the line '{line[:80]}'; expected {domain}/CLASS/FILE and a number.")
        if parts[1] not in number:
            continue
        if not (root / path).is_file():
            raise Misconfigured(f"'{root / path}' is missing; {file.name} names it. Restore the picture.")
        pictures.append(Picture(root / path, number[parts[1]], domain))
    if not pictures:
        raise Misconfigured(f"'{file}' lists no picture of {', '.join(classes)}. Restore the list.")
    return pictures


def _describe(name: str, layout: _Domains, how: str) -> Spec:
    return declare(
        Spec(
            name=name,
            formats=(partial(_read, layout),),
            wanted=f"folders {', '.join(layout.domains)} with one folder per class",
            how=how,
        )
    )


_OFFICE_SPEC = _describe(
    "office_caltech10", _OFFICE, "FedBN (github.com/med-air/FedBN) links the pictures; extract them there."
)
_DOMAINNET_SPEC = _describe(
    "domainnet", _DOMAINNET, "Extract the six archives and lists of ai.bu.edu/M3SDA (DomainNet) there."
)


@datasets.register()
def office_caltech10(path: str = "") -> Dataset:
    """Office-Caltech10: 10 classes in the domains amazon, caltech, dslr and webcam, resized to 256×256.

    FedBN publishes its split as pickles, which are never read. Without text lists, the test part is a fifth of each
    domain, always the same fifth.
    """
    return load(_OFFICE_SPEC, path)


@datasets.register()
def domainnet(path: str = "") -> Dataset:
    """DomainNet: FedBN's 10 classes in six domains, resized to 256×256, split by the published text lists.

    Without the lists, the test part is a fifth of each domain, always the same fifth.
    """
    return load(_DOMAINNET_SPEC, path)
