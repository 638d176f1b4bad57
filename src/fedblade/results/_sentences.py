"""Sentences for captions and tables: which rounds a mean is over, and which methods have no global model."""

from collections.abc import Iterable, Sequence

from fedblade.core.words import short_listing
from fedblade.results._groups import Group
from fedblade.results._record import finite_number

_MOST = 10
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

MEAN_OVER_PERSONAL_MODELS = "the mean over the personal models"
_OWN_SAMPLES, _WHOLE_SET = "their own test samples", "the whole test set, the same for all clients"

Counts = Iterable[tuple[int, int]]
"""Pairs of the number of evaluated rounds and the number of all rounds, one per run."""


def last_rounds(counts: Counts) -> str:
    """`last 10 rounds`, `all 8 rounds`, `all 3 evaluated rounds`, `only round` or `last 10 rounds at most`."""
    evaluated = _evaluated(counts)
    kind = "evaluated round" if any(count < done for count, done in evaluated) else "round"
    fewest, most = _range(evaluated)
    if fewest == _MOST:
        return f"last {_MOST} {kind}s"
    if fewest < most:
        return f"last {_MOST} {kind}s at most"
    return f"only {kind}" if most == 1 else f"all {most} {kind}s"


def over_last_rounds(counts: Counts) -> str:
    """The rounds in a sentence: `the last 10 rounds`, `all 8 rounds`."""
    words = last_rounds(counts)
    return words if words.startswith("all") else f"the {words}"


def last_rounds_heading(counts: Counts) -> str:
    """The rounds in a narrow column: `last 10`, `all 8`, `only`, `last ≤10`."""
    fewest, most = _range(_evaluated(counts))
    if fewest == _MOST:
        return f"last {_MOST}"
    if fewest < most:
        return f"last ≤{_MOST}"
    return "only" if most == 1 else f"all {most}"


def last_rounds_of_run(evaluated: int) -> str:
    """The rounds of one run: `last ten`, `all eight`."""
    return "last ten" if evaluated >= _MOST else f"all {_WORDS[evaluated - 1]}"


def _evaluated(counts: Counts) -> list[tuple[int, int]]:
    """The counts of the runs with an evaluated round."""
    return [(count, done) for count, done in counts if count]


def _range(evaluated: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The fewest and the most rounds that a mean is over; ten where nothing was evaluated yet."""
    used = [min(count, _MOST) for count, _ in evaluated] or [_MOST]
    return min(used), max(used)


def samples_of_personal_models(methods: Sequence[tuple[str, bool]]) -> str:
    """The samples that personal models were measured on.

    `methods` are pairs of a label and whether every client was measured on its own test samples.
    """
    apart, shared = ([label for label, own_samples in methods if own_samples is kind] for kind in (True, False))
    if apart and shared:
        return f"{_OWN_SAMPLES} ({short_listing(apart)}) or on {_WHOLE_SET} ({short_listing(shared)})"
    return _OWN_SAMPLES if apart else _WHOLE_SET


def coverage_sentence(
    groups: Sequence[Group],
    drawn: Sequence[object],
    *,
    of_model: bool = True,
    personal: str = MEAN_OVER_PERSONAL_MODELS,
) -> str:
    """Which groups have no global model, and which groups have no values; empty where all groups have both.

    `drawn` has None for every group without values. With `of_model` the values are those of the global model, otherwise
    of what clients send. `personal` says what is drawn for methods without a global model.
    """
    shown = [group for group, value in zip(groups, drawn, strict=True) if value is not None]
    absent = [group for group, value in zip(groups, drawn, strict=True) if value is None]
    silent = [group.label for group in absent if not of_model and _sends_nothing(group)]
    named = set(silent)
    unmeasured = [group.label for group in absent if group.label not in named]
    sentences = [personal_models_sentence(shown, personal)] if of_model else []
    sentences += [f"Left out: {short_listing(silent)}, where clients send no model."] if silent else []
    sentences += [f"Not measured: {short_listing(unmeasured)}."] if unmeasured else []
    return " ".join(filter(None, sentences))


def personal_models_sentence(groups: Sequence[Group], drawn: str = MEAN_OVER_PERSONAL_MODELS) -> str:
    """What is drawn for the groups without a global model; empty where all groups have one."""
    labels = [group.label for group in groups if group.personal]
    if not labels:
        return ""
    if len(labels) == len(groups) > 1:
        return f"No method here has a global model: shown is {drawn}."
    have, them = ("has", "it") if len(labels) == 1 else ("have", "them")
    return f"{short_listing(labels)} {have} no global model; shown for {them} is {drawn}."


def _sends_nothing(group: Group) -> bool:
    return all(finite_number(run.summary.get("bytes_up")) == 0 for run in group.runs)
