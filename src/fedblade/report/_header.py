"""The top of the page: what was compared, the headline result, and warnings."""

from collections import Counter
from collections.abc import Callable, Sequence

from fedblade.charts import partition_text
from fedblade.core.words import listing, plural, short_listing
from fedblade.report._results import signed
from fedblade.results import (
    MOST_NAMED,
    ComparisonRow,
    Group,
    RunRecord,
    over_last_rounds,
    paired_difference,
    percent,
    unreadable_note,
)

_MOST_WARNINGS = 12


def default_heading(groups: Sequence[Group]) -> str:
    """What is compared, and on what."""
    methods = list(dict.fromkeys(group.method for group in groups))
    what = listing(methods) if len(methods) <= MOST_NAMED else f"{len(methods)} methods"
    return f"{what} on {listing(_distinct_values(groups, lambda run: run.part('dataset')))}"


def notices(groups: Sequence[Group]) -> list[str]:
    """Warnings that a reader needs before the table."""
    runs = [run for group in groups for run in group.runs]
    sentences = []
    waiting = Counter(run.status for run in runs if not run.finished)
    if waiting:
        states = listing([f"{count} {status}" for status, count in waiting.items()])
        sentences.append(
            f"{sum(waiting.values())} of {plural(len(runs), 'run')} not finished ({states}). Means use finished runs "
            "only; a group without one shows its values so far. Groups with an unfinished run are not ranked."
        )
    if len({group.setting for group in groups}) > 1:
        sentences.append(
            "The groups differ in data, partition, federation or model (see Configuration); compare accuracies only "
            "between groups that agree in these."
        )
    if any(run.on_validation for run in runs):
        sentences.append(
            "Rows marked 'validation' were measured on samples held out of the clients' training data, to choose "
            "settings. They are no test accuracies, and are ranked among themselves."
        )
    if len(_pictures(groups)) > 1:
        sentences.append(
            f"The runs were trained on different pictures ({listing(_pictures(groups))}); compare accuracies only "
            "between runs with the same."
        )
    if len({run.accuracy_of for run in runs}) > 1:
        sentences.append(
            "Rows marked 'personal models' average the clients' personal models; the others are one global model."
        )
    if claimed := [group.label for group in groups if any(run.claimed for run in group.runs)]:
        sentences.append(
            f"The accuracy of {short_listing(claimed)} is claimed: the nodes have measured it by themselves, and "
            "nobody has checked it."
        )
    sentences.extend(_first_few(_repeated_seeds(groups)))
    sentences.extend(_first_few([f"Watch out, {group.label}: {flag}." for group in groups for flag in group.flags]))
    unreadable = unreadable_note(runs)
    sentences.extend([unreadable] if unreadable else [])
    return sentences


def _first_few(sentences: Sequence[str]) -> list[str]:
    """The first warnings of one kind, and how many more there are."""
    rest = len(sentences) - _MOST_WARNINGS
    return [*sentences[:_MOST_WARNINGS], *([f"There are {rest} more warnings like the last one."] if rest > 0 else [])]


def _repeated_seeds(groups: Sequence[Group]) -> list[str]:
    sentences = []
    for group in groups:
        twice = [str(s) for s, n in Counter(r.seed for r in group.counted).items() if n > 1 and s is not None]
        if twice:
            sentences.append(
                f"{group.label}: seed {listing(twice)} occurs more than once, and every run counts in the mean."
            )
    return sentences


def facts(groups: Sequence[Group]) -> dict[str, str]:
    """What was run, on what and how often."""
    runs = [run for group in groups for run in group.runs]
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    distinct = {
        "dataset": _distinct_values(groups, lambda run: run.part("dataset")),
        "pictures": _pictures(groups) or [""],
        "partition": _distinct_values(groups, partition_text),
        "model": _distinct_values(groups, lambda run: run.part("model")),
        "clients": _distinct_values(groups, _clients_text),
        "rounds": _distinct_values(groups, lambda run: str(run.rounds_planned or run.rounds_done)),
        "seeds": [", ".join(map(str, seeds)) or "?"],
        "runs": [str(len(runs))],
    }
    return {name: ", ".join(values) for name, values in distinct.items() if values != [""]}


def _distinct_values(groups: Sequence[Group], read: Callable[[RunRecord], str]) -> list[str]:
    return list(dict.fromkeys(read(run) for group in groups for run in group.runs))


def _pictures(groups: Sequence[Group]) -> list[str]:
    """The sources of the samples, as far as runs name them."""
    return [source for source in _distinct_values(groups, lambda run: run.pictures) if source]


def _clients_text(run: RunRecord) -> str:
    stored = run.config.get("federation")
    if not isinstance(stored, dict) or "num_clients" not in stored:
        return plural(len(run.partition.counts), "client") if run.partition else ""
    chosen, unseen = stored.get("clients_per_round"), run.summary.get("unseen_clients")
    facts = (str(stored["num_clients"]), f"{chosen} per round" if chosen else "", f"{unseen} unseen" if unseen else "")
    return ", ".join(filter(None, facts))


def finding(rows: Sequence[ComparisonRow]) -> str:
    """The headline result in one sentence, and whether the seeds settle it; empty where several rows have no order.

    Accuracies on validation samples are for choosing settings: they are the result only where there are no others.
    """
    rows = [row for row in rows if not row.on_validation] or rows
    if len(rows) == 1:
        return _of_one(rows[0])
    first = [row for row in rows if row.rank == 1]
    second = [row for row in rows if row.rank == 2]
    if len(first) != 1 or len(second) != 1:
        return ""
    best, next_best = first[0], second[0]
    if best.ranked_mean is None or next_best.ranked_mean is None:
        return ""
    gap, seeds = best.ranked_mean - next_best.ranked_mean, plural(len(best.seeds), "seed")
    instead = ", or after calibration at the end of the run" if any(row.calibrated for row in rows) else ""
    over = over_last_rounds(count for row in rows for count in row.evaluations)
    kind = "validation " if best.on_validation else ""
    sentence = (
        f"Highest mean {kind}accuracy over {over}{instead}: {best.label}, {percent(best.ranked_mean)} % over "
        f"{seeds}, {gap:.2f} points above {next_best.label}."
    )
    return f"{sentence} {_certainty(best, next_best)}"


def _certainty(best: ComparisonRow, next_best: ComparisonRow) -> str:
    """Whether another choice of seeds could turn the order of two rows around."""
    found = paired_difference(best, next_best)
    if found is None:
        few = len(best.seeds) == 1
        what = "One seed cannot tell" if few else "They share too few seeds to tell"
        return f"{what} whether this would hold for other seeds."
    over = f"{signed(found.low)} to {signed(found.high)} points over {plural(found.seeds, 'seed')}"
    if found.settled:
        return f"The 95 % interval of the difference is {over}."
    return f"That is not settled: the 95 % interval of the difference is {over}."


def _of_one(row: ComparisonRow) -> str:
    """The result where there is nothing to compare with."""
    if row.ranked_mean is None or row.final_mean is None:
        return ""
    over = "after calibration" if row.calibrated else f"over {over_last_rounds(row.evaluations)}"
    so_far, kind = "" if row.finished else " so far", "validation" if row.on_validation else "test"
    means = f", mean of {plural(len(row.seeds), 'seed')}" if len(row.seeds) > 1 else ", single run"
    return (
        f"{row.label} has a {kind} accuracy of {percent(row.ranked_mean)} % {over}, and {percent(row.final_mean)} % in "
        f"the last round{so_far}{means}."
    )
