"""A progress bar for work that takes a while. Without a terminal nothing is shown."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextlib.contextmanager
def bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show `label` with a bar while the body runs. The body calls the given function with the number of new items."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.advance(task, done)
