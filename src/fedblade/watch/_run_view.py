"""One run as lines of text: headline, curves, diagnostics, health and traffic."""

from collections.abc import Mapping

from rich.text import Text

from fedblade.charts import partition_text
from fedblade.core.words import plural
from fedblade.results import (
    HISTORY,
    IN_PROGRESS,
    RunRecord,
    client_name,
    duration,
    last_rounds_of_run,
    participation,
    percent,
    size,
)
from fedblade.watch._draw import (
    BLUE,
    GREEN,
    MUTED,
    ORANGE,
    RED,
    STRONG,
    beside,
    clock,
    curve,
    fit,
    half,
    number,
    pair,
    sparkline,
    terminal_safe,
)
from fedblade.watch._folder import WatchedRun
from fedblade.watch._measured import Series, counters, diagnostics, series, warnings
from fedblade.watch._pace import recent_mean

STATUS_STYLES = {IN_PROGRESS: BLUE, "finished": GREEN, "interrupted": ORANGE, "failed": RED}
WIDE = 100
"""From this width on, two blocks stand next to each other."""
_TIGHT = 12
"""With fewer lines than this, only one curve is shown."""
_LABEL, _NAME, _VALUE, _SPARK = 8, 32, 12, 20
_LEAST_ROWS, _MOST_ROWS, _USUAL_ROWS = 3, 10, 6


def run_lines(watched: WatchedRun, now: float, width: int, height: int | None) -> list[Text]:
    """The run in at most `width` columns and `height` lines, if there are about 20 or more; None shows everything."""
    run = watched.record
    top = _headline(watched, now, width)
    bottom = [*_health(watched, now), _traffic(run, width)]
    middle = None if height is None else height - len(top) - len(bottom) - 2
    curves = _curves(run, width, middle)
    remaining = None if middle is None else middle - len(curves)
    return [*top, Text(), *curves, *_diagnostics(run, width, remaining), Text(), *bottom]


def time_left(watched: WatchedRun, now: float) -> str:
    """How long a run in progress will still take, in words; empty if nobody can know."""
    run = watched.record
    if not run.history:
        return "waiting for the first round"
    if run.rounds_planned is not None and run.rounds_done >= run.rounds_planned:
        return "all rounds done, not yet finished"
    left = watched.pace.left(run, watched.age(now))
    included = " with evaluation" if watched.pace.by_clock else ""
    return "" if left is None else f"about {clock(left)} left{included}"


def _headline(watched: WatchedRun, now: float, width: int) -> list[Text]:
    """The title, the progress, and times: of training so far, per round, and until the end."""
    run, status = watched.record, watched.status(now)
    trained = [round_.seconds for round_ in run.history if round_.seconds is not None]
    per_round = f", {duration(recent_mean(trained))} s per round" if trained else ""
    times = [f"training {clock(sum(trained))}{per_round}"]
    if status == IN_PROGRESS:
        times.append(time_left(watched, now))
    return [
        pair(_title(run), Text(terminal_safe(status), style=f"bold {STATUS_STYLES.get(status, RED)}"), width),
        _bar(run, width),
        Text(" · ".join(filter(None, times))),
    ]


def _title(run: RunRecord) -> Text:
    """Method, data, split, model and seed of the run."""
    facts = [partition_text(run), run.part("model")]
    facts += [] if run.seed is None else [f"seed {run.seed}"]
    title = Text(f"{terminal_safe(run.part('method'))} on {terminal_safe(run.part('dataset'))}", style=STRONG)
    return title.append(f" · {terminal_safe(' · '.join(facts))}", style="not bold")


def _bar(run: RunRecord, width: int) -> Text:
    """`round 3 of 60 ━━━──── 5 %`."""
    if not run.rounds_planned:
        return Text(f"round {run.rounds_done}")
    share = min(run.rounds_done / run.rounds_planned, 1.0)
    words, rest = f"round {run.rounds_done} of {run.rounds_planned} ", f" {int(100 * share):3d} %"
    cells = max(width - len(words) - len(rest), 0)
    done = int(cells * share)
    return Text.assemble(words, ("━" * done, BLUE), ("─" * (cells - done), MUTED), rest)


def _curves(run: RunRecord, width: int, room: int | None) -> list[Text]:
    wide, tight = width >= WIDE, room is not None and room < _TIGHT
    # Curves take half of the room, titles and axes included.
    rows = _USUAL_ROWS if room is None else room // 2 // (1 if wide or tight else 2) - 2
    area = (half(width) if wide else width, max(_LEAST_ROWS, min(_MOST_ROWS, rows)))
    whose = "accuracy of personal models" if run.accuracy_of == "personal" else "accuracy"
    title = f"{'claimed ' if run.claimed else ''}test {whose}, %"
    evaluated = run.rounds_evaluated
    facts = f" · {last_rounds_of_run(evaluated)} {percent(run.last10_accuracy)}" if evaluated > 1 else ""
    facts += f" · calibrated {percent(run.final_accuracy)}" if run.calibrated else ""
    last = run.rounds_planned or run.rounds_done
    first = _plot(title, series(run, "test_accuracy"), last, area, BLUE, facts)
    second = _plot("test loss", series(run, "test_loss"), last, area, ORANGE)
    if wide:
        return beside(first, second, width)
    return first if tight else [*first, *second]


def _plot(
    title: str, values: Series, last_round: int, area: tuple[int, int], style: str, facts: str = ""
) -> list[Text]:
    """A titled curve in `area` (columns, rows), with its lowest and highest value and its first and last round."""
    if not values.points:
        return [Text(f"{title}: no round has been evaluated yet", style=MUTED)]
    width, height = area
    heading = pair(Text(title, style=STRONG), Text(f"now {number(values.last)}{facts}"), width)
    rows = curve(values.points, last_round, max(width - _LABEL - 1, 1), height)
    marks = [number(max(values.values)), *[""] * (height - 2), number(min(values.values))]
    drawn = [Text.assemble((f"{mark:>{_LABEL}} ", MUTED), (row, style)) for mark, row in zip(marks, rows, strict=True)]
    first, last = f"{'':{_LABEL}} {values.points[0][0]:.0f}", f"round {max(last_round, values.points[-1][0]):.0f}"
    return [heading, *drawn, pair(Text(first, style=MUTED), Text(last, style=MUTED), width)]


def _diagnostics(run: RunRecord, width: int, room: int | None) -> list[Text]:
    """A heading and as many numbers as fit into `room` lines; nothing if none fits."""
    courses = diagnostics(run)
    columns = 2 if width >= WIDE else 1
    shown = courses if room is None else courses[: max(room - 2, 0) * columns]
    if not shown:
        return []
    hidden = len(courses) - len(shown)
    more = Text(f"{hidden} more in {HISTORY}" if hidden else "", style=MUTED)
    heading = pair(Text("diagnostics", style=STRONG), more, width)
    spark = min(_SPARK, (half(width) if columns == 2 else width) - _NAME - _VALUE)
    lines = [_diagnostic(course, max(spark, 1)) for course in shown]
    middle = -(-len(lines) // columns)
    return [Text(), heading, *(beside(lines[:middle], lines[middle:], width) if columns == 2 else lines)]


def _diagnostic(values: Series, spark: int) -> Text:
    """Label, newest value and, in `spark` columns, the course of a number."""
    name = fit(Text(terminal_safe(values.label)), _NAME)
    name.pad_right(_NAME - name.cell_len)
    return Text.assemble(name, f"{number(values.last):>{_VALUE - 2}}  ", (sparkline(values.values, spark), GREEN))


def _health(watched: WatchedRun, now: float) -> list[Text]:
    run = watched.record
    problems = warnings(run)
    if watched.overdue(now):
        usual = duration(watched.pace.per_round(run))
        problems.append(f"stale: no new round for {clock(watched.age(now))}, usually {usual} s; stuck or killed?")
    if watched.problem:
        problems.append(f"last change not shown: {terminal_safe(watched.problem)}")
    lines = [Text(f"! {text}", style=f"bold {RED}") for text in problems]
    lines += [Text.assemble(("health  ", STRONG), text) for text in counters(run)]
    return lines or [Text.assemble(("health  ", STRONG), ("every counter is zero", MUTED))]


def _traffic(run: RunRecord, width: int) -> Text:
    """The bytes so far and, if there is room, how many clients took part."""
    up, down = (sum(series(run, key).values) for key in ("bytes_up", "bytes_down"))
    traffic = Text.assemble(("traffic ", STRONG), f"up {size(up)} · down {size(down)}")
    texts = (_took_part(run) + _by_name(run), _took_part(run), "")
    return traffic.append(next(text for text in texts if not text or traffic.cell_len + len(text) <= width))


def _by_name(run: RunRecord) -> str:
    """The rounds of each client that has a name."""
    if run.partition is None or run.partition.client_names is None:
        return ""
    named = [f"{terminal_safe(client_name(run, client.client))} {client.added}" for client in participation(run)]
    return f" ({', '.join(named)})" if named else ""


def _took_part(run: RunRecord) -> str:
    """How many of the clients took part so far, and how often; nothing before the first round."""
    times = [client.added for client in participation(run) if client.added]
    if not times:
        return ""
    federation = run.config.get("federation")
    population = federation.get("num_clients") if isinstance(federation, Mapping) else None
    of_all = f" of {population}" if isinstance(population, int) else ""
    # Short enough for 80 columns: byte counts of three digits, and hundreds of clients.
    often = f"{min(times)}–{max(times)} times" if min(times) < max(times) else plural(times[0], "time")
    return f" · {len(times)}{of_all} clients took part {often}"
