"""Cards as Markdown: one page per method, and an index of all."""

from collections.abc import Iterable, Sequence

from fedblade.cards._card import Card, card
from fedblade.cards._text import MODEL, moment, payload_text, presets_text, sizes_text, value_text, wrapped
from fedblade.core.registry import methods

INDEX = "README.md"
_INTRODUCTION = f"""\
# Methods

Made by `make docs` from the methods themselves; `fedblade show METHOD` prints the same, also for combinations such as
`fedprox+feddecorr` or `fedavg-ft`. Bytes are those of one client of the quickstart
({MODEL}, float32).
"""
_WIDTH = 100
"""Of the formula, which a page does not wrap."""
_LINKS = {"arXiv:": "https://arxiv.org/abs/", "doi:": "https://doi.org/"}


def pages() -> dict[str, str]:
    """The text of every page under docs/methods by its file name; methods of other packages are left out."""
    own = [entry.name for entry in methods.entries() if entry.make.__module__.startswith("fedblade.methods.")]
    cards = [card(name) for name in own]
    return {INDEX: index(cards), **{f"{each.name}.md": page(each) for each in cards}}


def index(cards: Sequence[Card]) -> str:
    """A table of methods, each with a link to its page."""
    rows = [(f"[{c.name}]({c.name}.md)", c.summary, _link(c.paper), _whose(c), _extra(c), _state(c)) for c in cards]
    heading = ("method", "what it does", "paper", "model", "besides the model, in bytes", "state")
    return f"{_INTRODUCTION}\n{_table(heading, rows)}\n"


def page(card: Card) -> str:
    """The page of one method."""
    paper = f" Paper: {_link(card.paper)}." if card.paper else ""
    added = [f"`{name}`: {text}" for name, text in card.added.items()]
    formula = "\n".join(("```text", *wrapped(card.text, _WIDTH), "```")) if card.text else ""
    parts = [
        f"# {card.name}",
        f"{card.summary}{paper}",
        formula,
        *added,
        f"## Knobs\n\n{_knobs(card)}",
        f"## Terms\n\n{_terms(card)}",
        f"## Training\n\n{_training(card)}",
        f"## What travels\n\n{_traffic(card)}",
        f"## State\n\n{_kept(card)}",
        f"## Clients' own models\n\n{_own(card)}",
        f"## Secure sums and engines\n\nSecure sums: {card.secure.sentence}. Engines: {', '.join(card.engines)}.",
        "Made by `make docs`; change the method, not this page.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _knobs(card: Card) -> str:
    if not card.knobs:
        return "None."
    rows = [(f"`{each.key}`", f"`{value_text(each.default)}`", presets_text(each)) for each in card.knobs]
    return _table(("knob", "default", "presets that differ"), rows)


def _terms(card: Card) -> str:
    rows = [(f"`{each.name}`", each.strength + ("" if each.on else " (off)"), each.meaning) for each in card.terms]
    return _table(("term", "strength", "what it is"), rows) if rows else "None."


def _training(card: Card) -> str:
    who = "Every client trains in every round.\n\n" if card.participation == "all" else ""
    rows = [
        (each.model, ", ".join(each.trains), each.lasts, _codes(each.terms), "; ".join(each.remarks))
        for each in card.phases
    ]
    return who + _table(("model", "trains", "for", "on", "remarks"), rows)


def _traffic(card: Card) -> str:
    traffic = card.traffic
    rows = [("down, each round", "model", f"model {traffic.down_model:,} bytes")] if traffic.down_model else []
    rows += [("down, each round", "method", payload_text(each)) for each in traffic.down_extra]
    rows += [("down, once", "method", payload_text(each)) for each in traffic.once]
    rows += [("up, each round", "model", payload_text(each)) for each in traffic.up_model]
    rows += [("up, each round", "method", payload_text(each)) for each in traffic.up_extra]
    for each in traffic.exchanges:
        when = moment(each.when, each.clients)
        rows += [(f"down, {when}", "exchange", f"{each.bytes_down:,} bytes")] if each.bytes_down else []
        rows += [(f"up, {when}", "exchange", payload_text(payload)) for payload in each.up]
    total = f"A client's first round: {traffic.bytes_down:,} bytes down, {traffic.bytes_up:,} bytes up ({MODEL})."
    simulated = f"{_table(('when', 'whose', 'what'), rows)}\n\n{total}" if rows else "Nothing travels."
    return f"{simulated}\n\nDeployed, {traffic.deployed}."


def _kept(card: Card) -> str:
    server, client = sizes_text(card.kept.server), sizes_text(card.kept.client)
    accuracy = "the mean over clients' own models" if card.accuracy_of == "personal" else "the global model"
    return (
        f"- server: {server or 'none besides the model'}\n- each client: {client or 'none'}\n"
        f"- a run's accuracy is that of {accuracy}"
    )


def _own(card: Card) -> str:
    tuning = _table(("protocol", "own models after the run"), list(card.own.tuning.items()))
    return f"What is a client's own: {card.own.what}.\n\n{tuning}"


def _whose(card: Card) -> str:
    """Whether a run is about the global model or about the clients' own."""
    if card.accuracy_of == "personal":
        return "personal"
    return "global" if card.own.what.startswith("none") else "global and personal"


def _extra(card: Card) -> str:
    """What travels besides the model, in few words."""
    traffic = card.traffic
    down = [f"down {each.name} {each.bytes:,}" for each in traffic.down_extra]
    up = [f"up {each.name} {each.bytes:,}" for each in traffic.up_extra]
    other = [
        f"{each.when.replace('_', ' ')} {payload.name} {payload.bytes:,}"
        for each in traffic.exchanges
        for payload in each.up
    ]
    return "; ".join((*down, *up, *other)) or "–"


def _state(card: Card) -> str:
    kept = {"server": card.kept.server, "client": card.kept.client}
    return "; ".join(f"{side}: {', '.join(names)}" for side, names in kept.items() if names) or "–"


def _codes(names: Iterable[str]) -> str:
    return " + ".join(f"`{name}`" for name in names)


def _link(paper: str) -> str:
    """A paper's identifier as a link, where it is one."""
    for prefix, address in _LINKS.items():
        if paper.startswith(prefix):
            return f"[{paper}]({address}{paper.removeprefix(prefix)})"
    return paper


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
