"""How accuracy is distributed over clients, as measured or as estimated from the accuracy of classes."""

import statistics
from collections.abc import Sequence

from fedblade.report._charts import Figure
from fedblade.report._lines import LineChart
from fedblade.report._measures import small_figure
from fedblade.results import NAMED, Array, Curve, Group, RunRecord, drawn_sentence, listing, measured_on, number, vector

_STEPS = tuple(range(0, 101, 5))
_READING = (
    "Clients sorted from worst to best for each method. A line that starts low leaves some clients with a poor model; "
    "the flatter, the more alike clients are served."
)
_ESTIMATED = (
    "Estimated: the final global model's accuracy of each class, weighted by the labels the client has; its own "
    "samples were not measured."
)
_WITHOUT = (
    "Left out: {}, without a global model to estimate by, and no own model was measured on samples of its client's own."
)


def client_figure(groups: Sequence[Group]) -> Figure | None:
    """Accuracy over clients: measured where every group has been measured, otherwise estimated by the global model.

    Where there is no global model, own models that were measured on their clients' samples stand beside the estimates.
    """
    measured = all(_was_measured(group) for group in groups)
    reads = [_measured if measured or group.personal else estimated_accuracies for group in groups]
    shown = [measured or not group.personal or _is_comparable(group) for group in groups]
    curves = tuple(
        _quantiles([values for run in group.counted if (values := read(run))]) if drawn else None
        for group, read, drawn in zip(groups, reads, shown, strict=True)
    )
    chart = LineChart(
        title="Accuracy by client",
        desc="Accuracy against the share of clients, clients sorted from worst to best.",
        x_label="clients, % from the worst",
        y_label="accuracy, %",
        labels=tuple(group.label for group in groups),
        curves=curves,
        bounds=(0.0, 100.0),
        keyed=False,
    )
    source = _measured_sentence(groups) if measured else _estimated_sentence(groups, curves)
    return small_figure("by-client", chart, f"{_READING} {source}", _worst(groups, curves))


def _was_measured(group: Group) -> bool:
    return any(_measured(run) for run in group.counted)


def _is_comparable(group: Group) -> bool:
    """Whether own models were measured on their clients' labels, which is what an estimate is about."""
    return group.runs[0].tests_apart and _was_measured(group)


def _measured_sentence(groups: Sequence[Group]) -> str:
    on = measured_on([(group.label, group.runs[0].tests_apart) for group in groups])
    return f"Measured: the clients' own models on {on}."


def _estimated_sentence(groups: Sequence[Group], curves: Sequence[Curve | None]) -> str:
    """Which lines are estimated, which are measured and which are left out."""
    drawn = list(zip(groups, curves, strict=True))
    estimated = [(group, curve) for group, curve in drawn if not group.personal]
    own = [group.label for group, curve in drawn if group.personal and curve is not None]
    absent = [group.label for group, curve in drawn if group.personal and curve is None]
    said = [
        _ESTIMATED if any(curve is not None for _, curve in estimated) else "",
        f"Measured for {listing(own)}, without a global model: own models on their clients' samples." if own else "",
        _WITHOUT.format(listing(absent)) if absent else "",
        drawn_sentence([group for group, _ in estimated], [curve for _, curve in estimated]),
    ]
    return " ".join(filter(None, said))


def _worst(groups: Sequence[Group], curves: Sequence[Curve | None]) -> str:
    at = _STEPS.index(10)
    found = [(group.label, curve.mean[at]) for group, curve in zip(groups, curves, strict=True) if curve is not None]
    if not found or len(found) > NAMED:
        return ""
    told = listing([f"{value:.1f} % with {label}" for label, value in found])
    return f"A tenth of the clients have at most {told}."


def _measured(run: RunRecord) -> list[float]:
    return [value for row in run.clients if (value := number(row.get("accuracy"))) is not None]


def estimated_accuracies(run: RunRecord) -> list[float]:
    """The accuracies of classes at the last diagnosed round, averaged by each client's share of labels.

    None where there is no global model: what is stored by class is then a mean over models, and nobody's.
    """
    read = Array("class_accuracy", vector).read
    found = [values for _, stored in sorted(run.diagnostics.items()) if (values := read(stored)) is not None]
    if run.accuracy_of == "personal" or not found or run.partition is None:
        return []
    if len(found[-1]) != len(run.partition.counts[0]):
        return []
    clients = []
    for counts in run.partition.counts:
        held = [(n, value) for n, value in zip(counts, found[-1], strict=True) if n > 0 and value is not None]
        if held:
            clients.append(sum(n * value for n, value in held) / sum(n for n, _ in held))
    return clients


def _quantiles(per_run: Sequence[Sequence[float]]) -> Curve | None:
    """The distribution over clients at every twentieth, mean and range over seeds."""
    if not per_run:
        return None
    columns = [[_at(sorted(values), step / 100) for values in per_run] for step in _STEPS]
    return Curve(_STEPS, tuple(map(statistics.fmean, columns)), tuple(map(min, columns)), tuple(map(max, columns)))


def _at(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the two nearest clients."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
