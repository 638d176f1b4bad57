"""From a data set's name to a `Dataset`: find the files, decode them once, map the result into memory."""

import hashlib
import json
import logging
from pathlib import Path

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._cache import (
    VERSION,
    Damaged,
    Decoded,
    add_description,
    open_decoded,
    open_or_build,
    remember_request,
    requests_in,
)
from fedblade.data._dataset import Dataset, Part
from fedblade.data._digest import digest_files
from fedblade.data._hub import download, downloads_allowed
from fedblade.data._source import PARTS, PartName, Source
from fedblade.data._spec import Spec, cache_root, decoded_root, find_place, missing, recognise

_log = logging.getLogger("fedblade.data")


def load(spec: Spec, path: str = "", *, every_block: bool = False) -> Dataset:
    """The data set of `spec`, from `path` or from the usual folders; its files are decoded at the first call only."""
    place = find_place(spec, path)
    if place is None:
        copies = decoded_copies(spec)
        if copies:
            return _from_copy(spec, copies, every_block)
        if spec.hub is None or not downloads_allowed():
            raise missing(spec)
        place = cache_root() / spec.name
        place.parent.mkdir(parents=True, exist_ok=True)
        download(spec.name, spec.hub, place)
    source = recognise(spec, place)
    folder = decoded_root() / f"{spec.name}-{_key(spec, source)[:32]}"
    decoded = open_or_build(folder, spec.name, source, measure=spec.measured, every_block=every_block)
    decoded = add_description(decoded, source)
    if not path:
        remember_request(decoded, spec.request)
    return _as_dataset(spec, decoded)


def decoded_copies(spec: Spec) -> list[Path]:
    """Folders of decoded copies that may replace the files of a data set; the copies are not checked here.

    Copies of an explicit path or of other settings are left out, because they hold other data.
    """
    folders = []
    for folder in sorted(decoded_root().glob(f"{spec.name}-*")):
        try:
            meta = json.loads((folder / "meta.json").read_text())
        except (OSError, ValueError):
            continue
        same = meta.get("version") == VERSION and meta.get("name") == spec.name
        if same and spec.request in requests_in(meta):
            folders.append(folder)
    return folders


def _from_copy(spec: Spec, copies: list[Path], every_block: bool) -> Dataset:
    """The data set from its decoded copy, for original files that are gone."""
    if len(copies) > 1:
        raise Misconfigured(
            f"dataset '{spec.name}' was decoded from {len(copies)} different sources and none of them exists now. "
            f"Set FEDBLADE_DATA or dataset.path, or remove all but one of {', '.join(map(str, copies))}."
        )
    try:
        return _as_dataset(spec, open_decoded(copies[0], every_block=every_block))
    except Damaged as reason:
        raise Misconfigured(
            f"the decoded copy of dataset '{spec.name}' is damaged ({reason}) and its files are gone. Remove "
            f"'{copies[0]}'. {missing(spec)}"
        ) from reason


def _key(spec: Spec, source: Source) -> str:
    content = digest_files(source.root, source.files, cache_root() / "digests")
    return hashlib.sha256(f"{VERSION}\n{spec.name}\n{source.options}\n{content}".encode()).hexdigest()


def _as_dataset(spec: Spec, decoded: Decoded) -> Dataset:
    meta, names = decoded.meta, tuple(decoded.meta["class_names"])
    parts = {part: _part(decoded, part) for part in PARTS}
    sizes = tuple(len(part) for part in parts.values())
    if spec.published and sizes != spec.published:
        _log.warning(
            "dataset '%s' holds %d training and %d test samples here; the published set has %d and %d",
            *(spec.name, *sizes, *spec.published),
        )
    groups = meta["group_names"]
    return Dataset(
        name=spec.name,
        train=parts["train"],
        test=parts["test"],
        num_classes=len(names),
        unit=spec.unit,
        mean=tuple(meta.get("mean", spec.mean)),
        std=tuple(meta.get("std", spec.std)),
        class_names=names,
        group_names=tuple(groups) if groups else None,
        margin=spec.margin,
        source=meta.get("pictures", "unknown"),
        fingerprint=decoded.folder.name.rpartition("-")[2],
    )


def _part(decoded: Decoded, part: PartName) -> Part:
    inputs, labels, groups = (decoded.arrays.get(f"{part}-{kind}") for kind in ("inputs", "labels", "groups"))
    return Part(np.asarray(inputs), np.asarray(labels), None if groups is None else np.asarray(groups))
