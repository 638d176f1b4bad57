"""A folder as text for the terminal: a table if it holds several runs, and one run in detail."""

from collections import Counter

from rich.text import Text

from fedblade.core.words import listing, plural
from fedblade.results import IN_PROGRESS, unreadable_note
from fedblade.watch._draw import BLUE, MUTED, RED, STRONG, fit, pair, sparkline, terminal_safe
from fedblade.watch._folder import WatchedFolder, WatchedRun
from fedblade.watch._measured import series
from fedblade.watch._run_view import STATUS_STYLES, WIDE, run_lines, time_left

_MOST_RUNS = 10
_SPARK = 12
_SPARK_FROM = 80
"""From this width on, the table shows the course of the accuracy."""


def frame(folder: WatchedFolder, now: float, width: int, height: int | None = None) -> Text:
    """The state of the folder at the time `now`, in lines of at most `width` characters."""
    focus = folder.focus(now)
    if focus is None:
        lines = _waiting(folder)
    else:
        table = _table(folder, focus, now, width, height) if len(folder.runs) > 1 else []
        unread = unreadable_note([run.record for run in folder.runs if run is not focus])
        others = [problem for problem in (*folder.problems, unread) if problem not in ("", focus.problem)]
        above = [*table, *(Text(f"! {terminal_safe(problem)}", style=RED) for problem in others)]
        remaining = None if height is None else height - len(above)
        lines = [*above, *run_lines(focus, now, width, remaining)]
    return Text("\n", no_wrap=True, overflow="ellipsis").join([fit(line, width) for line in lines])


def _waiting(folder: WatchedFolder) -> list[Text]:
    problems = [Text(f"! {terminal_safe(problem)}", style=MUTED) for problem in folder.problems]
    return [Text(f"waiting for a run in '{terminal_safe(folder.path)}'", style=STRONG), *problems]


def _table(folder: WatchedFolder, focus: WatchedRun, now: float, width: int, height: int | None) -> list[Text]:
    """One line per run; if there are too many, the runs around the one that is shown in detail."""
    runs = folder.runs
    most = len(runs) if height is None else min(_MOST_RUNS, max(height // 5, 2))
    begin = max(0, min(runs.index(focus) - most // 2, len(runs) - most))
    states = Counter(run.status(now) for run in runs)
    heading = pair(
        Text(plural(len(runs), "run"), style=STRONG),
        Text(listing([f"{count} {terminal_safe(status)}" for status, count in states.items()]), style=MUTED),
        width,
    )
    shown = runs[begin : begin + most]
    lines = [_table_line(folder, run, run is focus, now, width) for run in shown]
    hidden = len(runs) - len(shown)
    more = [Text(f"  {plural(hidden, 'more run')}", style=MUTED)] if hidden else []
    return [heading, *lines, *more, Text()]


def _table_line(folder: WatchedFolder, run: WatchedRun, in_detail: bool, now: float, width: int) -> Text:
    record, status = run.record, run.status(now)
    accuracy = series(record, "test_accuracy")
    rounds = f"{record.rounds_done}/{record.rounds_planned or '?'}"
    reached = f"{accuracy.last:.2f} %" if accuracy.points else "–"
    word = "stale" if run.overdue(now) else terminal_safe(status)
    course = f"  {sparkline(accuracy.values, _SPARK):{_SPARK}}" if width >= _SPARK_FROM else ""
    right = Text.assemble(
        f"{rounds:>9}{reached:>9}",
        (course, BLUE),
        (f"  {word:11}", STATUS_STYLES.get(word, RED)),
    )
    name = run.folder.relative_to(folder.path)
    left = Text(f"{'▸' if in_detail else ' '} {terminal_safe(name)}", style=STRONG if in_detail else "")
    if status == IN_PROGRESS and width >= WIDE:
        left.append(f"  {time_left(run, now)}", style="dim not bold")
    return pair(left, right, width)


def plain_lines(text: Text) -> list[str]:
    """The text as lines without styles, for anything that is not a terminal."""
    return [line.rstrip() for line in text.plain.split("\n")]
