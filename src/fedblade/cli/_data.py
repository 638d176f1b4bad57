"""`fedblade data`: which data sets are here, and making one ready."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedblade.data import Dataset


def data(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Data set; all are listed if left out.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Go online if the files are not here.")] = False,
) -> None:
    """Find, check, decode and cache a data set, or list all. Goes online only with --download."""
    from fedblade.core.errors import Misconfigured

    if name is not None:
        typer.echo(_prepare(name, download))
    elif download:
        raise Misconfigured("--download needs the name of a data set: fedblade data NAME --download.")
    else:
        _list()


def _list() -> None:
    from fedblade.core.registry import datasets
    from fedblade.data import VARIABLE, cache_root, status

    states = [status(name) for name in datasets.names()]
    width = max(len(dataset.name) for dataset in states)
    for dataset in states:
        typer.echo(f"{dataset.name:<{width}}  {dataset.state:<8}  {dataset.note}")
    typer.echo(f"looked in dataset.path, ${VARIABLE}/NAME and {cache_root()}/NAME, in this order")


def _prepare(name: str, download: bool) -> str:
    """Make a data set ready, with every checksum verified, and describe it."""
    import contextlib
    import time

    from fedblade.core.registry import datasets
    from fedblade.data import allow_downloads, find_spec, load

    began = time.monotonic()
    spec = find_spec(name)
    with allow_downloads() if download else contextlib.nullcontext():
        dataset = datasets.get(name).make() if spec is None else load(spec, every_block=True)
    return f"{_sentence(dataset)}; ready after {time.monotonic() - began:.1f} s"


def _sentence(dataset: "Dataset") -> str:
    shape = "×".join(str(size) for size in dataset.input_shape)
    groups = f", {len(dataset.group_names)} groups" if dataset.group_names else ""
    return (
        f"{dataset.name}: {len(dataset.train):,} training and {len(dataset.test):,} test samples of {shape}, "
        f"{dataset.num_classes} classes{groups}, {dataset.source}, contents {dataset.digest()[:16]}"
    )
