"""A folder as one picture for the terminal: a table where it holds several runs, and one run in detail."""

from collections import Counter

from rich.text import Text

from fedblade.core.words import plural
from fedblade.results import IN_PROGRESS, listing
from fedblade.watch._draw import printable, sparkline
from fedblade.watch._folder import Folder, Watched
from fedblade.watch._lines import BLUE, MUTED, RED, STRONG, fit, pair
from fedblade.watch._measured import series
from fedblade.watch._run_view import STATUS_STYLES, WIDE, run_lines, time_left

_MOST_RUNS = 10
_SPARK, _ROOMY = 12, 80


def frame(folder: Folder, now: float, width: int, height: int | None = None) -> Text:
    """The state of the folder at the time `now`, no line longer than `width`."""
    focus = folder.focus(now)
    if focus is None:
        lines = _waiting(folder)
    else:
        table = _table(folder, focus, now, width, height) if len(folder.runs) > 1 else []
        broken = [Text(f"! {printable(each)}", style=RED) for each in folder.problems if each != focus.problem]
        above = [*table, *broken]
        left = None if height is None else height - len(above)
        lines = [*above, *run_lines(focus, now, width, left)]
    return Text("\n", no_wrap=True, overflow="ellipsis").join([fit(line, width) for line in lines])


def _waiting(folder: Folder) -> list[Text]:
    said = [Text(f"! {printable(each)}", style=MUTED) for each in folder.problems]
    return [Text(f"waiting for a run in '{printable(folder.path)}'", style=STRONG), *said]


def _table(folder: Folder, focus: Watched, now: float, width: int, height: int | None) -> list[Text]:
    """A line per run; where there are many, those around the one in detail."""
    runs = folder.runs
    most = len(runs) if height is None else min(_MOST_RUNS, max(height // 5, 2))
    begin = max(0, min(runs.index(focus) - most // 2, len(runs) - most))
    states = Counter(watched.status(now) for watched in runs)
    heading = pair(
        Text(plural(len(runs), "run"), style=STRONG),
        Text(listing([f"{count} {printable(status)}" for status, count in states.items()]), style=MUTED),
        width,
    )
    rows = [_row(folder, each, each is focus, now, width) for each in runs[begin : begin + most]]
    hidden = len(runs) - len(rows)
    more = [Text(f"  {plural(hidden, 'more run')}", style=MUTED)] if hidden else []
    return [heading, *rows, *more, Text()]


def _row(folder: Folder, watched: Watched, chosen: bool, now: float, width: int) -> Text:
    run, status = watched.record, watched.status(now)
    accuracy = series(run, "test_accuracy")
    rounds = f"{run.rounds_done}/{run.rounds_planned or '?'}"
    reached = f"{accuracy.last:.2f} %" if accuracy.points else "–"
    word = "stale" if watched.overdue(now) else printable(status)
    course = f"  {sparkline(accuracy.values, _SPARK):{_SPARK}}" if width >= _ROOMY else ""
    right = Text.assemble(
        f"{rounds:>9}{reached:>9}",
        (course, BLUE),
        (f"  {word:11}", STATUS_STYLES.get(word, RED)),
    )
    name = watched.folder.relative_to(folder.path)
    left = Text(f"{'▸' if chosen else ' '} {printable(name)}", style=STRONG if chosen else "")
    if status == IN_PROGRESS and width >= WIDE:
        left.append(f"  {time_left(watched, now)}", style="dim not bold")
    return pair(left, right, width)


def plain_lines(text: Text) -> list[str]:
    """The picture as lines without styles, for anything that is not a terminal."""
    return [line.rstrip() for line in text.plain.split("\n")]
