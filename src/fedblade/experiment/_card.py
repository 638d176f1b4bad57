"""A method's card: formula, knobs, what travels, state and engines, all read from the method itself."""

import inspect
import textwrap
from typing import Any

import numpy as np

from fedblade.core.method import Method
from fedblade.core.registry import engines
from fedblade.core.terms import AnyTerm, FeatureTerm, active
from fedblade.experiment import _toml
from fedblade.experiment._config import knob_tables
from fedblade.experiment._run import run
from fedblade.methods import compose


def card(name: str) -> str:
    """The card of a method, as plain text."""
    composition = compose(name)
    method = composition.build({})
    text = inspect.getdoc(composition.base.make) or ""
    added = [f"+ {entry.name}: {entry.summary}" for entry in composition.added]
    paper = composition.base.info.get("paper")
    sections = {
        "": "\n".join([f"{name}" + (f" ({paper})" if paper else ""), "", text, *added]),
        "Knobs and library defaults (presets may differ)": _knobs(name),
        "Terms": "\n".join(_term(term) for term in method.losses),
        "What travels": _travels(name, method),
        "State": _state(method),
        "Engines": ", ".join(engines.names()),
    }
    return "\n\n".join(
        f"{title}\n{textwrap.indent(body, '  ')}" if title else body for title, body in sections.items() if body
    )


def _knobs(name: str) -> str:
    return _toml.inline(knob_tables(name)) or "none"


def _term(term: AnyTerm) -> str:
    state = "" if active([term]) else " (off)"
    if isinstance(term, FeatureTerm) and term.balance is not None:
        return f"{term.name}: balanced, {term.balance:g} of the supervised pull{state}"
    return f"{term.name}: weight {term.weight:g}{state}"


def _travels(name: str, method: Method) -> str:
    """Names of the payloads, and their size for the quickstart's model, measured with one client in one round."""
    images, labels = np.zeros((20, 1, 8, 8), dtype=np.float32), np.arange(20) % 10
    data = (images, labels, images, labels)
    sizes: dict[str, Any] = {"num_clients": 1, "clients_per_round": 1, "rounds": 1, "epochs": 1}
    once = run("quickstart", method=name, dataset=data, partition="iid", **sizes)
    down, up = once.summary["bytes_down"], once.summary["bytes_up"]
    sent = ", ".join(("weights and statistics", *method.sent))
    lines = [f"down each round: {sent}; tensors that never change once", f"up each round: {_uploads(method)}"]
    lines += [f"{each.when.replace('_', ' ')}: {', '.join(s.name for s in each.sums)}" for each in method.exchanges]
    lines.append(f"one client, first round, quickstart's model: {down:,} bytes down, {up:,} bytes up")
    return "\n".join(lines)


def _uploads(method: Method) -> str:
    return ", ".join(
        f"{each.name} (rows of the client's classes, which shows which classes it holds)"
        if each.by_class
        else each.name
        for each in method.sums
    )


def _state(method: Method) -> str:
    lines = [f"server: {', '.join(method.server_state) or 'none besides the model'}"]
    kept = [*method.client_state, *(f"parameters of {group}" for group in method.personal)]
    kept += ["normalisation statistics"] if method.buffers == "local" else []
    lines.append(f"client: {', '.join(kept) or 'none'}")
    return "\n".join(lines)
