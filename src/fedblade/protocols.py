"""Evaluation protocols: how a history of test accuracies becomes the number that a paper prints."""

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import fmean, stdev
from typing import Any

History = Sequence[Mapping[str, Any]]
CALIBRATED = "calibrated_"
"""Prefix of the fields in the last record that measure the model after the exchanges at the end of the run."""
DEVIATION = "sample standard deviation over seeds (n−1)"
"""The meaning of ± in every table beside a mean over seeds; its short form is "std over seeds (n−1)"."""


def accuracies(history: History) -> list[tuple[int, float]]:
    """(round, test accuracy in percent) of the evaluated rounds, in order."""
    pairs = [(int(record["round"]), record.get("test_accuracy")) for record in history]
    return [(round_, float(value)) for round_, value in pairs if value is not None and isfinite(value)]


def last_mean(history: History, count: int) -> float | None:
    """Mean over the last `count` evaluated rounds, or over all if there are fewer."""
    values = [value for _, value in accuracies(history)][-count:]
    return fmean(values) if values else None


def final(history: History) -> float | None:
    """Accuracy of the last evaluated round."""
    return last_mean(history, 1)


def best(history: History) -> float | None:
    """Highest accuracy over rounds: optimistic, because it is chosen on the test set."""
    return max((value for _, value in accuracies(history)), default=None)


def rounds_to(history: History, threshold: float) -> int | None:
    """First round whose accuracy reaches `threshold` percent, or None."""
    return next((round_ for round_, value in accuracies(history) if value >= threshold), None)


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation over seeds, √(Σ(x − x̄)²/(n − 1)); one seed has no deviation."""
    return fmean(values), stdev(values) if len(values) > 1 else None


def pooled_last_std(histories: Sequence[History], count: int) -> float | None:
    """Sample standard deviation (n−1) over the last `count` evaluated rounds of all runs together."""
    values = [value for history in histories for _, value in accuracies(history)[-count:]]
    return stdev(values) if len(values) > 1 else None


def domain_mean(history: History) -> float | None:
    """Unweighted mean over domains of the last evaluated round."""
    tables = [record["domain_accuracy"] for record in history if record.get("domain_accuracy")]
    return fmean(tables[-1].values()) if tables else None


def is_calibrated(history: History) -> bool:
    """Whether exchanges at the end of the run changed the model after its last evaluation in a round."""
    return bool(history) and f"{CALIBRATED}accuracy" in history[-1]


def outcome(history: History) -> History:
    """The records that the result is computed from: all, or one record of the model after the exchanges at the end."""
    if not is_calibrated(history):
        return history
    fields = {key.removeprefix(CALIBRATED): value for key, value in history[-1].items() if key.startswith(CALIBRATED)}
    measured = {f"test_{key}" if key in ("accuracy", "loss") else key: value for key, value in fields.items()}
    return [{"round": history[-1]["round"], **measured}]


def headline(history: History, protocol: str) -> float | None:
    """The accuracy that `evaluation.protocol` reports.

    If exchanges at the end of the run changed the model, that model is the result. It has only one accuracy, which is
    then the last, the best, and the mean over rounds.
    """
    history = outcome(history)
    match protocol:
        case "last10":
            return last_mean(history, 10)
        case "last5" | "pers_etf":
            return last_mean(history, 5)
        case "gapa":
            return best(history)
        case "domain":
            return domain_mean(history)
        case _:
            return final(history)
