"""Put the page together: headline, notices, sections and the style sheet in one file."""

import importlib.resources
from collections import Counter
from collections.abc import Callable, Sequence

from fedblade.report import _collapse, _drift, _geometry, _sections, _served
from fedblade.report._charts import accuracy_figure, label_map_figures, loss_figure
from fedblade.report._collapse import collapse
from fedblade.report._compare import ComparisonRow
from fedblade.report._contents import contents
from fedblade.report._cost import cost
from fedblade.report._data import embed
from fedblade.report._drift import drift
from fedblade.report._geometry import geometry
from fedblade.report._groups import Group
from fedblade.report._html import details, figure, name_cell, paragraph, section
from fedblade.report._record import RunRecord
from fedblade.report._served import served
from fedblade.report._svg import escape
from fedblade.report._words import listing, percent, plural

_NAMED_METHODS = 4
_SHOWN_MAPS = 6
_LEVELS = ("alpha", "classes_per_client", "shards_per_client")
# Nothing may be loaded from anywhere, whatever a run's files contain.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_EXPLAINED = (
    (collapse, "Do the features collapse?", _collapse.METRICS),
    (geometry, "Do classes separate as they should?", _geometry.METRICS),
    (drift, "Do clients pull in different directions?", _drift.METRICS),
    (served, "Who is served?", _served.METRICS),
)
_NOT_EVALUATED = "No round has been evaluated yet, so there is nothing to draw."


def page(groups: Sequence[Group], rows: Sequence[ComparisonRow], title: str | None) -> str:
    """The complete HTML document."""
    heading = title or _heading(groups)
    explained = [draw(groups) for draw, _, _ in _EXPLAINED]
    main = "".join(
        [
            _sections.results(rows),
            _curves(groups),
            _label_maps(groups),
            *explained,
            cost(groups),
            _not_measured(groups, explained),
            _sections.runs(groups),
            _sections.configuration(groups),
            _sections.versions(groups),
        ]
    )
    labels = embed([group.label for group in groups], name="methods")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(heading)} · fedblade report</title>\n<style>\n{_packaged('style.css')}</style>\n</head>\n"
        f"<body>\n{_header(heading, groups, rows)}{contents(groups, main)}{_bar(groups)}<main>{main}</main>\n"
        f"{labels}<script>\n{_packaged('page.js')}</script>\n</body>\n</html>\n"
    )


def _packaged(name: str) -> str:
    return (importlib.resources.files("fedblade.report") / name).read_text(encoding="utf-8")


def _bar(groups: Sequence[Group]) -> str:
    """The legend of all charts, which stays in view; the script makes each entry a switch."""
    chips = "".join(f'<span class="chip" data-chip="{i}">{name_cell(i, g.label)}</span>' for i, g in enumerate(groups))
    return f'<div class="bar" role="group" aria-label="Methods in the charts">{chips}</div>'


def _not_measured(groups: Sequence[Group], explained: Sequence[str]) -> str:
    """What the runs did not record, and how to have it next time beside what they did."""
    absent = [each[1:] for each, drawn in zip(_EXPLAINED, explained, strict=True) if not drawn]
    if not absent:
        return ""
    questions = listing([f"“{question}”" for question, _ in absent])
    asked = _distinct_metrics(groups)
    names = ",".join(dict.fromkeys((*asked, *(name for _, given in absent for name in given))))
    said = f"These runs have not recorded what answers {questions} To have it in the next report as well, add "
    return f'<p class="note absent">{escape(said)}<code>--set metrics={escape(names)}</code> to the command.</p>'


def _distinct_metrics(groups: Sequence[Group]) -> list[str]:
    """The metrics that the runs were asked for."""
    tables = [run.config.get("evaluation") for group in groups for run in group.runs]
    stored = [table.get("metrics") for table in tables if isinstance(table, dict)]
    return list(dict.fromkeys(str(name) for names in stored if isinstance(names, list) for name in names))


def notices(groups: Sequence[Group]) -> list[str]:
    """What a reader must know before trusting the table."""
    found = [run for group in groups for run in group.runs]
    said = []
    waiting = Counter(run.status for run in found if not run.finished)
    if waiting:
        states = listing([f"{count} {status}" for status, count in waiting.items()])
        said.append(
            f"{sum(waiting.values())} of {plural(len(found), 'run')} not finished ({states}). Means use finished runs "
            "only; a group without one shows its values so far. Groups with an unfinished run are not ranked."
        )
    if len({group.setting for group in groups}) > 1:
        said.append(
            "The groups differ in data, partition, federation or model (see Configuration); compare accuracies only "
            "between groups that agree in these."
        )
    if len({run.accuracy_of for run in found}) > 1:
        said.append("Rows marked 'personal models' average the clients' own models; the others are one global model.")
    if any(run.accuracy_of == "personal" for run in found):
        said.append(
            "Where captions speak of the averaged model, methods without one show the mean over clients' models."
        )
    said.extend(_repeated_seeds(groups))
    return said


def _repeated_seeds(groups: Sequence[Group]) -> list[str]:
    said = []
    for group in groups:
        twice = [str(s) for s, n in Counter(r.seed for r in group.counted).items() if n > 1 and s is not None]
        if twice:
            said.append(
                f"{group.label}: seed {listing(twice)} occurs more than once, and every run counts in the mean."
            )
    return said


def _header(heading: str, groups: Sequence[Group], rows: Sequence[ComparisonRow]) -> str:
    facts = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in _facts(groups).items())
    warnings = "".join(f'<p class="notice" role="note">{escape(said)}</p>' for said in notices(groups))
    finding = _finding(rows)
    return (
        f'<header><p class="eyebrow">fedblade report</p><h1>{escape(heading)}</h1>'
        f"{paragraph(finding, 'finding') if finding else ''}<dl>{facts}</dl>{warnings}</header>"
    )


def _heading(groups: Sequence[Group]) -> str:
    methods = list(dict.fromkeys(group.method for group in groups))
    what = listing(methods) if len(methods) <= _NAMED_METHODS else f"{len(methods)} methods"
    return f"{what} on {listing(_distinct(groups, lambda run: run.part('dataset')))}"


def _facts(groups: Sequence[Group]) -> dict[str, str]:
    found = [run for group in groups for run in group.runs]
    seeds = sorted({run.seed for run in found if run.seed is not None})
    facts = {
        "dataset": _distinct(groups, lambda run: run.part("dataset")),
        "partition": _distinct(groups, _partition_text),
        "model": _distinct(groups, lambda run: run.part("model")),
        "clients": _distinct(groups, _clients_text),
        "rounds": _distinct(groups, lambda run: str(run.rounds_planned or run.rounds_done)),
        "seeds": [", ".join(map(str, seeds)) or "?"],
        "runs": [str(len(found))],
    }
    return {name: ", ".join(values) for name, values in facts.items() if values != [""]}


def _distinct(groups: Sequence[Group], read: Callable[[RunRecord], str]) -> list[str]:
    return list(dict.fromkeys(read(run) for group in groups for run in group.runs))


def _partition_text(run: RunRecord) -> str:
    stored = run.config.get("partition")
    levels = [f"{key} {stored[key]}" for key in _LEVELS if key in stored] if isinstance(stored, dict) else []
    return " ".join([run.part("partition"), *(level.replace("_", " ") for level in levels)])


def _clients_text(run: RunRecord) -> str:
    stored = run.config.get("federation")
    if not isinstance(stored, dict) or "num_clients" not in stored:
        return plural(len(run.partition.counts), "client") if run.partition else ""
    chosen = stored.get("clients_per_round")
    return f"{stored['num_clients']}" + (f", {chosen} per round" if chosen else "")


def _finding(rows: Sequence[ComparisonRow]) -> str:
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
    said = (
        f"Highest mean accuracy over the last 10 rounds{instead}: {best.label}, {percent(best.ranked_mean)} % over "
        f"{seeds}, {gap:.2f} points above {next_best.label}."
    )
    if len(best.seeds) == 1:
        return said + " One seed cannot tell whether this would hold for another."
    return said + (" That gap is within the spread over seeds." if gap <= spread else "")


def _curves(groups: Sequence[Group]) -> str:
    accuracy, loss = accuracy_figure(groups), loss_figure(groups)
    return section(
        "accuracy", "Test accuracy over rounds", figure(accuracy) if accuracy else paragraph(_NOT_EVALUATED)
    ) + section("loss", "Test loss over rounds", figure(loss) if loss else paragraph(_NOT_EVALUATED))


def _label_maps(groups: Sequence[Group]) -> str:
    maps = label_map_figures(groups)
    if not maps:
        return section(
            "labels", "How are the labels spread over clients?", paragraph("No run has stored its partition.")
        )
    first, *others = maps
    parts = [paragraph(first.title, "figure-title"), figure(first)]
    parts += [details(other.title, figure(other)) for other in others[: _SHOWN_MAPS - 1]]
    if len(maps) > _SHOWN_MAPS:
        parts.append(paragraph(f"{len(maps) - _SHOWN_MAPS} more partitions are not shown here."))
    return section("labels", "How are the labels spread over clients?", *parts)
