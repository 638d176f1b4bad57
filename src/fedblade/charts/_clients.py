"""How accuracy is distributed over clients, as measured or as estimated from the accuracy of classes."""

from collections.abc import Sequence

from fedblade.charts._arrays import CLASS_ACCURACY
from fedblade.charts._model import PERCENT, Axis, Chart, Series, group_panel, series_over_seeds
from fedblade.core.words import listing, short_listing
from fedblade.results import MOST_NAMED, Group, RunRecord, coverage_sentence, finite_number, samples_of_personal_models

_SHARES = tuple(range(0, 101, 5))
"""Shares of the clients, in percent, at which the distribution is drawn."""
_READING = (
    "Clients sorted from worst to best for each method. A line that starts low means that some clients have a poor "
    "model. The flatter the line, the more alike the clients are served."
)
_ESTIMATED = (
    "Estimated: the final global model's accuracy of each class, weighted by the labels of the client. The client's "
    "own samples were not measured."
)
_LEFT_OUT = "Left out: {}. They have no global model, and their personal models were not measured on client samples."


def client_chart(groups: Sequence[Group]) -> Chart | None:
    """Accuracy over clients: measured where every group has been measured, otherwise estimated by the global model.

    Of methods without a global model, personal models that were measured on their clients' samples are drawn as well.
    """
    measured = all(_was_measured(group) for group in groups)
    series = [_series(group, measured=measured) for group in groups]
    if not any(series):
        return None
    source = _measured_sentence(groups) if measured else _estimated_sentence(groups, series)
    return Chart(
        name="by-client",
        title="Accuracy by client",
        about="Accuracy against the share of clients, clients sorted from worst to best.",
        panel=group_panel(
            groups, series, Axis("clients, % from the worst", whole=True), Axis("accuracy", "%", bounds=PERCENT)
        ),
        reading=f"{_READING} {source}",
        seen=_worst_sentence(groups, series),
    )


def measured_accuracies(run: RunRecord) -> list[float]:
    """The accuracy of every client's personal model, as far as the run has measured it."""
    return [value for client in run.clients if (value := finite_number(client.get("accuracy"))) is not None]


def estimated_accuracies(run: RunRecord) -> list[float]:
    """The accuracies of classes at the last diagnosed round, averaged by the share of labels that a client has.

    There are none without a global model: the stored accuracy of a class is then a mean over models.
    """
    stored = [
        values for _, arrays in sorted(run.diagnostics.items()) if (values := CLASS_ACCURACY.read(arrays)) is not None
    ]
    if run.accuracy_of == "personal" or not stored or run.partition is None:
        return []
    if len(stored[-1]) != len(run.partition.counts[0]):
        return []
    clients = []
    for counts in run.partition.counts:
        pairs = [(n, value) for n, value in zip(counts, stored[-1], strict=True) if n > 0 and value is not None]
        if pairs:
            clients.append(sum(n * value for n, value in pairs) / sum(n for n, _ in pairs))
    return clients


def _series(group: Group, *, measured: bool) -> Series | None:
    if not measured and group.personal and not (group.runs[0].tests_apart and _was_measured(group)):
        # An estimate is about the labels of a client; personal models measured on the whole test set are not.
        return None
    read = measured_accuracies if measured or group.personal else estimated_accuracies
    return _quantiles([values for run in group.counted if (values := read(run))])


def _was_measured(group: Group) -> bool:
    return any(measured_accuracies(run) for run in group.counted)


def _measured_sentence(groups: Sequence[Group]) -> str:
    on = samples_of_personal_models([(group.label, group.runs[0].tests_apart) for group in groups])
    return f"Measured: the personal models on {on}."


def _estimated_sentence(groups: Sequence[Group], series: Sequence[Series | None]) -> str:
    """Which lines are estimated, which are measured and which are left out."""
    pairs = list(zip(groups, series, strict=True))
    estimated = [(group, values) for group, values in pairs if not group.personal]
    personal = [group.label for group, values in pairs if group.personal and values is not None]
    absent = [group.label for group, values in pairs if group.personal and values is None]
    sentences = [
        _ESTIMATED if any(values is not None for _, values in estimated) else "",
        f"Measured for {short_listing(personal)}, without a global model: personal models on their clients' samples."
        if personal
        else "",
        _LEFT_OUT.format(short_listing(absent)) if absent else "",
        coverage_sentence([group for group, _ in estimated], [values for _, values in estimated]),
    ]
    return " ".join(filter(None, sentences))


def _worst_sentence(groups: Sequence[Group], series: Sequence[Series | None]) -> str:
    at = _SHARES.index(10)
    worst = [(group.label, values.y[at]) for group, values in zip(groups, series, strict=True) if values is not None]
    if len(worst) > MOST_NAMED:
        return ""
    values = listing([f"{value:.1f} % with {label}" for label, value in worst])
    return f"Nine of ten clients have at least {values}."


def _quantiles(per_run: Sequence[Sequence[float]]) -> Series | None:
    """The distribution over clients at every twentieth, mean and range over seeds."""
    if not per_run:
        return None
    columns = [[quantile(sorted(values), share / 100) for values in per_run] for share in _SHARES]
    return series_over_seeds(_SHARES, columns)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the two nearest clients."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
