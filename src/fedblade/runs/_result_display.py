"""A result in words: its line in a Python session, and its table in a notebook."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedblade.results import Table, over_last_rounds, percent, size

_ACCURACIES = ("final_accuracy", "last10_accuracy", "personal_accuracy")


def result_line(summary: Mapping[str, Any], path: Path | None) -> str:
    """What a Python session prints: method, data, rounds, accuracy and folder."""
    names = ("method", "dataset", "seed", "rounds", *(() if summary.get("status") == "finished" else ("status",)))
    facts = {name: repr(summary.get(name)) for name in names}
    facts |= {name: f"{summary[name]:.2f}" for name in _ACCURACIES if summary.get(name) is not None}
    facts |= {} if path is None else {"path": repr(str(path))}
    return f"Result({', '.join(f'{name}={text}' for name, text in facts.items())})"


def result_table(summary: Mapping[str, Any], path: Path | None) -> Table:
    """What a notebook shows above the curve; the warnings of the run are notes."""
    whose = "mean of the personal models" if summary["accuracy_of"] == "personal" else "global model"
    last = over_last_rounds([(summary.get("rounds_evaluated", summary["rounds"]), summary["rounds"])])
    personal = summary.get("personal_accuracy")
    rows = [
        ("rounds", f"{summary['rounds']} ({summary['status']})"),
        (f"final accuracy, % ({whose})", percent(summary.get("final_accuracy"))),
        (f"mean of {last}, %", percent(summary.get("last10_accuracy"))),
        *([] if personal is None else [("personal models, %", percent(personal))]),
        ("training", f"{summary['seconds']:.1f} s"),
        ("sent up / down", f"{size(summary.get('bytes_up'))} / {size(summary.get('bytes_down'))}"),
        ("folder", "none" if path is None else str(path)),
    ]
    return Table.of_texts(("", "value"), rows, notes=[f"watch out: {flag}" for flag in summary.get("flags", ())])
