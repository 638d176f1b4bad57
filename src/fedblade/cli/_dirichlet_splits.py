"""`fedblade partition --compare`: the splits that papers and code call "Dirichlet with alpha", side by side."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fedblade.config.run_config import RunConfig
    from fedblade.data import Dataset

# As in the code of, in this order: NIID-Bench, MOON, FedDecorr and FedNTD; FedGELA; FedETF; FedDF; FedRCL; FedDyn with
# clients of equal sizes; FedDyn with clients of unequal sizes.
SPLITS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("dirichlet", {"cap": True, "min_size": 10}),
    ("dirichlet", {"cap": True, "min_size": 0, "allow_empty": True}),
    ("dirichlet", {"cap": False, "min_size": 0, "allow_empty": True}),
    ("dirichlet_groups", {}),
    ("dirichlet_clients", {"deal": "clients"}),
    ("dirichlet_clients", {"deal": "samples"}),
    ("dirichlet_clients", {"sizes": "lognormal", "deal": "samples"}),
)
_NAME, _REST = 17, 61
_HEADINGS = ("samples", "classes", "largest", "clients", "lacking", "dist.", "")
_WIDTHS = (15, 8, 8, 8, 8, 7, 9)
_LEGEND = """
samples  of a client: fewest/median/most
classes  that a client has in effect, of {classes}
largest  share of the samples that are in the largest class of their client
clients  that have a class in effect, of {clients}
lacking  classes that a cohort of {cohort} lacks on average, of {classes}
dist.    share of a cohort's samples that would have to change class to match
         all data

{lacks}"""


def compare_splits(config: "RunConfig", dataset: "Dataset") -> None:
    """Print a row for every split as soon as it is made; an impossible split has the reason in its row."""
    from fedblade.core.errors import Misconfigured
    from fedblade.partitions import LACKS

    if "alpha" not in config.partition.knobs:
        raise Misconfigured(
            f"--compare needs alpha, but partition '{config.partition.name}' has none. "
            f"Use --set partition=dirichlet --set alpha=0.1."
        )
    alpha, shape = config.partition.knobs["alpha"], config.federation
    size = f"{len(dataset.train.labels)} samples of {dataset.num_classes} classes"
    typer.echo(f"{config.dataset.name}, {size}, alpha={alpha:g}, seed {config.general.seed}\n")
    typer.echo(f"{'split':{_NAME}}{_columns(_HEADINGS)}")
    for name, knobs in SPLITS:
        settings = textwrap.wrap(
            " ".join([name, *(f"{key}={str(knob).lower()}" for key, knob in knobs.items())]), _NAME
        )
        try:
            measured = _measured(config, dataset, name, {"alpha": alpha, **knobs})
        except Misconfigured as error:
            measured = [f"  {line}" for line in textwrap.wrap(str(error), _REST)]
        for left, right in zip_longest(settings, measured, fillvalue=""):
            typer.echo(f"{left:{_NAME}}{right}".rstrip())
    cohort = shape.clients_per_round
    facts = {"classes": dataset.num_classes, "clients": shape.num_clients, "cohort": cohort}
    typer.echo(_LEGEND.format(**facts, lacks=textwrap.fill(LACKS, _NAME + _REST)))


def refuse_knobs(config: "RunConfig", overrides: Mapping[str, Any]) -> None:
    """Refuse knobs other than alpha: every row of the comparison sets its other knobs."""
    from fedblade.config.settings import show
    from fedblade.core.errors import Misconfigured

    for key, value in overrides.items():
        section, _, knob = key.rpartition(".")
        if section in ("", "partition") and knob in config.partition.knobs and knob != "alpha":
            raise Misconfigured(
                f"--compare would ignore --set {key}={show(value)}, because every split it shows sets its knobs. Leave "
                f"{knob} out, or leave --compare out to see one split."
            )


def _measured(config: "RunConfig", dataset: "Dataset", name: str, knobs: Mapping[str, Any]) -> list[str]:
    """The numbers of a split as the rest of its row."""
    import numpy as np

    from fedblade.core.registry import partitions
    from fedblade.partitions import hardness
    from fedblade.runs import split_clients

    chosen = replace(config.partition, name=name, entry=partitions.get(name), knobs=knobs)
    split = split_clients(replace(config, partition=chosen), dataset).train
    measured, sizes = hardness(split, config.federation.clients_per_round), split.sizes()
    row = (
        f"{sizes.min()}/{np.median(sizes):.0f}/{sizes.max()}",
        f"{measured.effective_classes:.2f}",
        f"{100 * measured.largest_share:.0f} %",
        f"{measured.effective_clients:.1f}",
        f"{measured.missing_classes:.2f}",
        f"{measured.cohort_distance:.2f}",
        measured.level,
    )
    return [_columns(row)]


def _columns(row: Sequence[str]) -> str:
    return "".join(f"{text:>{width}}" for text, width in zip(row, _WIDTHS, strict=True))
