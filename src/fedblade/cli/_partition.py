"""`fedblade partition`: which client has which classes, and how hard that makes training."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedblade.cli import _options as opt

if TYPE_CHECKING:
    from rich.table import Table

    from fedblade.partitions import Parts

_MOST_CLIENTS, _MOST_CLASSES = 30, 12
_SAVE = "Write which samples every client has; partition=file reads it."
_COMPARE = "Measure every Dirichlet split of the same data, clients and alpha."


def partition(
    source: opt.Source = None,
    assignments: opt.Assignments = None,
    where: opt.Where = None,
    seed: opt.Seed = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw the label map.")] = None,
    save: Annotated[Path | None, typer.Option("--save", metavar="FILE.json", help=_SAVE)] = None,
    compare: Annotated[bool, typer.Option("--compare", help=_COMPARE)] = False,
) -> None:
    """Show how the training data are split: samples per client and class, and how hard that makes training.

    Without a preset or file, the split is that of the preset quickstart.
    """
    from fedblade.cli._dirichlet_splits import compare_splits, refuse_knobs
    from fedblade.core.files import write_file
    from fedblade.partitions import save_split
    from fedblade.report import label_map_svg
    from fedblade.runs import client_names, load_config, named_dataset, split_clients, split_training_data

    _check_files(plot, save, compare=compare)
    changes = opt.overrides(assignments, seed=seed)
    config, _ = load_config(source, changes, where or ())
    if compare:
        refuse_knobs(config, changes)
        compare_splits(config, named_dataset(config))
        return
    dataset = named_dataset(config)
    split = split_clients(config, dataset).train
    names = client_names(dataset, split)
    _print_split(split, config.federation.clients_per_round, names)
    if plot is not None:
        counts = split.short_table()
        shown = "" if len(counts) == split.num_clients else f", first {len(counts)} of {split.num_clients} clients"
        title = f"{config.partition.name}, seed {config.split_seed}{shown}"
        picture = label_map_svg(counts, class_names=dataset.class_names, client_names=names, title=title)
        typer.echo(str(write_file(plot, picture)))
    if save is not None:
        # The file includes the clients' test samples: a run that reads the file holds them out again.
        save_split(save, split_training_data(config, dataset))
        typer.echo(str(save))


def _check_files(plot: Path | None, save: Path | None, *, compare: bool) -> None:
    from fedblade.core.errors import Misconfigured

    for option, path, ending in (("--plot", plot, ".svg"), ("--save", save, ".json")):
        if path is not None and path.suffix != ending:
            raise Misconfigured(
                f"{option} '{path}' has the ending '{path.suffix}'; expected a file ending in {ending}."
            )
        if path is not None and compare:
            raise Misconfigured(f"{option} is for one split, but --compare shows several. Leave one of them out.")


def _print_split(split: "Parts", cohort: int, names: Sequence[str] | None) -> None:
    """Print the table of clients, a sentence on all clients, and what the split means for cohorts of this size."""
    from rich.console import Console

    from fedblade.partitions import LACKS, hardness

    console = Console()
    console.print(_table(split, names))
    counts = split.short_table()
    console.print(_summary(split, (counts > 0).sum(axis=1).tolist()), highlight=False)
    measured = hardness(split, cohort)
    facts = "\n".join(f"{what:46}{value:>16}" for what, value in measured.facts())
    console.print(f"\n{facts}\n\n{measured.sentence()} {LACKS}", highlight=False)


def _summary(split: "Parts", classes: list[int]) -> str:
    """One sentence about the clients; `classes` are the numbers of classes of the first clients, or of all."""
    from fedblade.core.words import plural

    sizes = split.sizes()
    counted = "" if len(classes) == split.num_clients else f" (the first {len(classes)} clients)"
    how = "drawn when asked for, clients overlap" if split.on_demand else plural(split.draws, "draw")
    return (
        f"{plural(split.num_clients, 'client')}, {sizes.min()} to {sizes.max()} samples each, "
        f"{min(classes)} to {max(classes)} of {split.num_classes} classes each{counted}, {how}"
    )


def _table(split: "Parts", names: Sequence[str] | None) -> "Table":
    """Samples per client and class; a long table is cut, and its caption says so."""
    from rich.markup import escape
    from rich.table import Table

    from fedblade.core.untrusted_text import SHOWN_CHARACTERS, printable

    table = Table(show_edge=False, pad_edge=False, caption=_caption(split))
    shown = min(split.num_classes, _MOST_CLASSES)
    for heading in ("client", "all", *(str(label) for label in range(shown))):
        table.add_column(heading, justify="right")
    for client in range(min(split.num_clients, _MOST_CLIENTS)):
        counts = split.counts(client, 0)
        name = str(client) if names is None else escape(printable(names[client], SHOWN_CHARACTERS))
        table.add_row(name, str(counts.sum()), *(str(n) if n else "·" for n in counts[:shown]))
    return table


def _caption(split: "Parts") -> str | None:
    """What the table leaves out, None where it is complete."""
    from fedblade.partitions import MOST_DRAWN

    hidden = []
    if split.num_clients > _MOST_CLIENTS:
        hidden.append(f"{split.num_clients - _MOST_CLIENTS} more clients")
    if split.num_classes > _MOST_CLASSES:
        hidden.append(f"{split.num_classes - _MOST_CLASSES} more classes")
    shown = f"the first {MOST_DRAWN}" if split.on_demand and split.num_clients > MOST_DRAWN else "all"
    return f"and {' and '.join(hidden)}; --plot shows {shown}" if hidden else None
