"""`fedblade partition`: who holds what."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedblade.cli import _options as opt

if TYPE_CHECKING:
    from rich.table import Table

    from fedblade.partitions import Parts

_MOST_ROWS, _MOST_CLASSES, _MOST_DRAWN = 30, 12, 1000


def partition(
    source: opt.Source = None,
    assignments: opt.Assignments = None,
    seed: opt.Seed = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw the label map.")] = None,
) -> None:
    """Show how the training data are split: samples per client and class, as a table and a picture."""
    from rich.console import Console

    from fedblade.core.errors import Misconfigured
    from fedblade.core.files import write_atomic
    from fedblade.experiment import load_config
    from fedblade.experiment._setup import split_clients
    from fedblade.report import label_map_svg

    if plot is not None and plot.suffix != ".svg":
        raise Misconfigured(f"--plot '{plot}' has the ending '{plot.suffix}'; expected a file ending in .svg.")
    config, _ = load_config(source, opt.overrides(assignments, seed=seed))
    dataset = config.dataset.make()
    split = split_clients(config, dataset).train
    console = Console()
    console.print(_table(split))
    # What is drawn when asked for is not drawn for everyone: a population may have millions.
    counts = split.table(_MOST_DRAWN if split.on_demand else None)
    console.print(_summary(split, (counts > 0).sum(axis=1).tolist()), highlight=False)
    if plot is not None:
        some = "" if len(counts) == split.num_clients else f", first {len(counts)} of {split.num_clients} clients"
        title = f"{config.partition.name}, seed {config.split_seed}{some}"
        picture = label_map_svg(counts, class_names=dataset.class_names, title=title)
        try:
            plot.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(plot, picture)
        except OSError as error:
            raise Misconfigured(f"cannot write '{plot}': {error.strerror}. Choose another place for --plot.") from error
        typer.echo(str(plot))


def _summary(split: "Parts", classes: list[int]) -> str:
    """One sentence about the clients; `classes` says how many each has, or each of the first."""
    sizes = split.sizes()
    some = "" if len(classes) == split.num_clients else f" (the first {len(classes)} clients)"
    how = "drawn when asked for, clients overlap" if split.on_demand else f"{split.draws} draw(s)"
    return (
        f"{split.num_clients} clients, {sizes.min()} to {sizes.max()} samples each, "
        f"{min(classes)} to {max(classes)} of {split.num_classes} classes each{some}, {how}"
    )


def _table(split: "Parts") -> "Table":
    """Samples per client and class; long tables are cut and say so."""
    from rich.table import Table

    table = Table(show_edge=False, pad_edge=False, caption=_cut(split))
    shown = min(split.num_classes, _MOST_CLASSES)
    for heading in ("client", "all", *(str(label) for label in range(shown))):
        table.add_column(heading, justify="right")
    for client in range(min(split.num_clients, _MOST_ROWS)):
        counts = split.counts(client, 0)
        table.add_row(str(client), str(counts.sum()), *(str(n) if n else "·" for n in counts[:shown]))
    return table


def _cut(split: "Parts") -> str | None:
    parts = []
    if split.num_clients > _MOST_ROWS:
        parts.append(f"{split.num_clients - _MOST_ROWS} more clients")
    if split.num_classes > _MOST_CLASSES:
        parts.append(f"{split.num_classes - _MOST_CLASSES} more classes")
    shown = f"the first {_MOST_DRAWN}" if split.on_demand and split.num_clients > _MOST_DRAWN else "all"
    return f"and {' and '.join(parts)}; --plot shows {shown}" if parts else None
