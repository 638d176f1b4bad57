"""The top of the page: what was compared, the headline result, and warnings."""

from collections import Counter
from collections.abc import Callable, Sequence

from fedblade.charts import partition_text
from fedblade.core.words import listing, plural
from fedblade.results import MOST_NAMED, ComparisonRow, Group, RunRecord, over_last_rounds, percent, unreadable_note


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
            f"The accuracy of {listing(claimed)} is claimed: the nodes have measured it by themselves, and nobody has "
            "checked it."
        )
    sentences.extend(_repeated_seeds(groups))
    sentences.extend(f"Watch out, {group.label}: {flag}." for group in groups for flag in group.flags)
    unreadable = unreadable_note(runs)
    sentences.extend([unreadable] if unreadable else [])
    return sentences


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
    chosen = stored.get("clients_per_round")
    return f"{stored['num_clients']}" + (f", {chosen} per round" if chosen else "")


def finding(rows: Sequence[ComparisonRow]) -> str:
    """The headline result in one sentence, with a warning when the seeds do not settle it; empty if not ranked."""
    first = [row for row in rows if row.rank == 1]
    second = [row for row in rows if row.rank == 2]
    if len(first) != 1 or len(second) != 1:
        return ""
    best, next_best = first[0], second[0]
    if best.ranked_mean is None or next_best.ranked_mean is None:
        return ""
    gap, spread = best.ranked_mean - next_best.ranked_mean, (best.ranked_std or 0.0) + (next_best.ranked_std or 0.0)
    seeds = plural(len(best.seeds), "seed")
    instead = ", or after calibration at the end of the run" if any(row.calibrated for row in rows) else ""
    over = over_last_rounds(count for row in rows for count in row.evaluations)
    sentence = (
        f"Highest mean accuracy over {over}{instead}: {best.label}, {percent(best.ranked_mean)} % over "
        f"{seeds}, {gap:.2f} points above {next_best.label}."
    )
    if len(best.seeds) == 1:
        return sentence + " One seed cannot tell whether this would hold for another."
    return sentence + (" That gap is within the spread over seeds." if gap <= spread else "")
