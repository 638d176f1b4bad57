"""`fedblade partition`: who holds what."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedblade.cli import _options as opt

if TYPE_CHECKING:
    from rich.table import Table

    from fedblade.partitions import Split

_MOST_ROWS, _MOST_CLASSES = 30, 12


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
    sizes = split.sizes()
    classes = (split.table() > 0).sum(axis=1)
    console.print(
        f"{split.num_clients} clients, {sizes.min()} to {sizes.max()} samples each, "
        f"{classes.min()} to {classes.max()} of {split.num_classes} classes each, {split.draws} draw(s)",
        highlight=False,
    )
    if plot is not None:
        title = f"{config.partition.name}, seed {config.general.seed}"
        picture = label_map_svg(split.table(), class_names=dataset.class_names, title=title)
        try:
            plot.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(plot, picture)
        except OSError as error:
            raise Misconfigured(f"cannot write '{plot}': {error.strerror}. Choose another place for --plot.") from error
        typer.echo(str(plot))


def _table(split: "Split") -> "Table":
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


def _cut(split: "Split") -> str | None:
    parts = []
    if split.num_clients > _MOST_ROWS:
        parts.append(f"{split.num_clients - _MOST_ROWS} more clients")
    if split.num_classes > _MOST_CLASSES:
        parts.append(f"{split.num_classes - _MOST_CLASSES} more classes")
    return f"and {' and '.join(parts)}; --plot shows all" if parts else None
