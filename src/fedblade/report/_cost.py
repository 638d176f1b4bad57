"""What does it cost? Time and communication, and the accuracy bought with them."""

import statistics
from collections.abc import Mapping, Sequence

from fedblade.report._charts import Figure
from fedblade.report._html import Column, grid, name_cell, paragraph, section, table
from fedblade.report._lines import LineChart
from fedblade.report._measures import small_figure
from fedblade.report._svg import escape
from fedblade.results import Curve, Group, RunRecord, drawn_sentence, duration, listing, number, size

_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def cost(groups: Sequence[Group]) -> str:
    """Timings and bytes in a table, and accuracy against both."""
    columns = [
        Column("method", numeric=False),
        Column("engine", numeric=False),
        Column("seconds per round"),
        Column("training seconds, all runs"),
        Column("up / down per round"),
        Column("up / down, all runs"),
    ]
    body = [_cells(index, group) for index, group in enumerate(groups)]
    pictures = [each for each in (_per_byte(groups), _per_second(groups)) if each is not None]
    note = "Seconds cover training and aggregation, not evaluation. Bytes are those of all clients of a round together."
    return section("cost", "What does it cost?", grid(pictures), table("Cost", columns, body), paragraph(note))


def _per_byte(groups: Sequence[Group]) -> Figure | None:
    """Accuracy against everything sent so far."""
    curves = [_against(group, ("bytes_up", "bytes_down")) for group in groups]
    most = max((curve.rounds[-1] for curve in curves if curve is not None), default=0.0)
    scale, unit = next(((value, name) for value, name in _UNITS if most >= value), (1.0, "bytes"))
    reading = (
        "Test accuracy against the bytes sent so far, both ways. A line further left reaches the same accuracy with "
        "less traffic."
    )
    nothing = [group.label for group, curve in zip(groups, curves, strict=True) if curve and not curve.rounds[-1]]
    reading += f" Nothing is sent with {listing(nothing)}, whose line stands at 0." if nothing else ""
    return _figure(groups, "per-byte", curves, scale, f"sent up and down, {unit}", "Accuracy for what is sent", reading)


def _per_second(groups: Sequence[Group]) -> Figure | None:
    """Accuracy against the time spent on training so far."""
    curves = [_against(group, ("seconds",)) for group in groups]
    reading = (
        "Test accuracy against the time of training and aggregation so far, on the machine that ran it. Comparable "
        "only where nothing else was running on that machine."
    )
    return _figure(groups, "per-second", curves, 1.0, "training seconds", "Accuracy for the time spent", reading)


def _figure(
    groups: Sequence[Group],
    name: str,
    curves: Sequence[Curve | None],
    scale: float,
    x_label: str,
    title: str,
    reading: str,
) -> Figure | None:
    chart = LineChart(
        title=title,
        desc=f"Test accuracy in percent against {x_label}, one line per method, mean over seeds.",
        x_label=x_label,
        y_label="test accuracy, %",
        labels=tuple(group.label for group in groups),
        curves=tuple(c and Curve(tuple(x / scale for x in c.rounds), c.mean, c.low, c.high) for c in curves),
        bounds=(0.0, 100.0),
        keyed=False,
        whole=False,
    )
    return small_figure(name, chart, f"{reading} {drawn_sentence(groups, curves)}".strip())


def _against(group: Group, keys: Sequence[str]) -> Curve | None:
    """Accuracy of the rounds all seeds have, placed at the mean of what the seeds had spent by then."""
    accuracy = group.curve(lambda r: r.accuracy)
    spent = [_running(run, keys) for run in group.counted]
    if accuracy is None or not all(all(at in each for at in accuracy.rounds) for each in spent):
        return None
    places = tuple(statistics.fmean(each[at] for each in spent) for at in accuracy.rounds)
    return Curve(places, accuracy.mean, accuracy.low, accuracy.high)


def _running(run: RunRecord, keys: Sequence[str]) -> Mapping[float, float]:
    """What was spent up to and including each round, as far as every round says."""
    total, found = 0.0, {}
    for each in run.history:
        if any(key not in each.fields for key in keys):
            break
        total += sum(each.fields[key] for key in keys)
        found[float(each.number)] = total
    return found


def _cells(index: int, group: Group) -> list[str]:
    engines = dict.fromkeys(run.part("engine") for run in group.runs)
    return [
        name_cell(index, group.label),
        escape(", ".join(engines)),
        duration(_mean([run.seconds_per_round for run in group.counted])),
        duration(_total(group, "seconds")),
        f"{size(_mean([run.per_round('bytes_up') for run in group.counted]))} / "
        f"{size(_mean([run.per_round('bytes_down') for run in group.counted]))}",
        f"{size(_total(group, 'bytes_up'))} / {size(_total(group, 'bytes_down'))}",
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _total(group: Group, key: str) -> float | None:
    known = [value for run in group.runs if (value := number(run.summary.get(key))) is not None]
    return sum(known) if known else None
