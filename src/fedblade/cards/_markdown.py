"""Cards as Markdown: one page per method, and an index."""

from collections.abc import Sequence

from fedblade.cards._card import Card, make_card
from fedblade.cards._text import MODEL, moment, payload_text, presets_text, sizes_text, space_lines, wrapped
from fedblade.config.literals import literal
from fedblade.core.registry import methods
from fedblade.results import markdown_texts

INDEX = "README.md"
_INTRODUCTION = f"""\
# Methods

Made by `make cards` from the methods themselves; `fedblade show METHOD` prints the same, also for combinations such as
`fedprox+feddecorr` or `fedavg-ft`. Bytes are those of one client of the quickstart
({MODEL}, float32).
"""
_FORMULA_WIDTH = 100
_LINKS = {"arXiv:": "https://arxiv.org/abs/", "doi:": "https://doi.org/"}


def method_pages() -> dict[str, str]:
    """The pages of docs/methods by file name; methods of other packages are left out."""
    names = [entry.name for entry in methods.entries() if entry.make.__module__.startswith("fedblade.methods.")]
    cards = [make_card(name) for name in names]
    return {INDEX: index(cards), **{f"{card.name}.md": page(card) for card in cards}}


def index(cards: Sequence[Card]) -> str:
    """A table of methods, each with a link to its page."""
    rows = [(f"[{c.name}]({c.name}.md)", c.summary, _link(c.paper), _models(c), _extra(c), _state(c)) for c in cards]
    heading = ("method", "what it does", "paper", "model", "besides the model, in bytes", "state")
    return f"{_INTRODUCTION}\n{markdown_texts(heading, rows)}\n"


def page(card: Card) -> str:
    """The page of one method."""
    paper = f" Paper: {_link(card.paper)}." if card.paper else ""
    added = [f"`{name}`: {text}" for name, text in card.added.items()]
    formula = "\n".join(("```text", *wrapped(card.text, _FORMULA_WIDTH), "```")) if card.text else ""
    parts = [
        f"# {card.name}",
        f"{card.summary}{paper}",
        formula,
        *added,
        f"## Knobs\n\n{_knobs(card)}",
        f"## Search space\n\n{_space(card)}",
        f"## Terms\n\n{_terms(card)}",
        f"## Training\n\n{_training(card)}",
        f"## What travels\n\n{_traffic(card)}",
        f"## State\n\n{_states_text(card)}",
        f"## Personal models\n\n{_personal(card)}",
        f"## Secure sums and engines\n\nSecure sums: {card.secure.sentence}. Engines: {', '.join(card.engines)}.",
        "Made by `make cards`; change the method, not this page.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _knobs(card: Card) -> str:
    if not card.knobs:
        return "None."
    rows = [
        (f"`{knob.key}`", knob.type, f"`{literal(knob.default)}`", presets_text(knob), knob.meaning)
        for knob in card.knobs
    ]
    return markdown_texts(("knob", "type", "default", "presets that differ", "meaning"), rows)


def _space(card: Card) -> str:
    """The values that tuning tries, and the command that tries them."""
    lines = "\n".join(f"- `{line}`" for line in space_lines(card))
    return f"`fedblade sweep --set method={card.name} --tune` tries\n\n{lines}"


def _terms(card: Card) -> str:
    rows = [(f"`{term.name}`", term.strength + ("" if term.on else " (off)"), term.meaning) for term in card.terms]
    return markdown_texts(("term", "strength", "what it is"), rows) if rows else "None."


def _training(card: Card) -> str:
    who = "Every client trains in every round.\n\n" if card.participation == "all" else ""
    rows = [
        (
            phase.model,
            ", ".join(phase.trains),
            phase.lasts,
            " + ".join(f"`{name}`" for name in phase.terms),
            "; ".join(phase.remarks),
        )
        for phase in card.phases
    ]
    return who + markdown_texts(("model", "trains", "for", "on", "remarks"), rows)


def _traffic(card: Card) -> str:
    traffic = card.traffic
    rows = [("down, each round", "model", f"model {traffic.down_model:,} bytes")] if traffic.down_model else []
    for when, part, payloads in (
        ("down, each round", "method", traffic.down_extra),
        ("down, once", "method", traffic.once),
        ("up, each round", "model", traffic.up_model),
        ("up, each round", "method", traffic.up_extra),
    ):
        rows += [(when, part, payload_text(payload)) for payload in payloads]
    for exchange in traffic.exchanges:
        when = moment(exchange.when, exchange.clients)
        rows += [(f"down, {when}", "exchange", f"{exchange.bytes_down:,} bytes")] if exchange.bytes_down else []
        rows += [(f"up, {when}", "exchange", payload_text(payload)) for payload in exchange.up]
    total = f"A client's first round: {traffic.bytes_down:,} bytes down, {traffic.bytes_up:,} bytes up ({MODEL})."
    simulated = f"{markdown_texts(('when', 'part', 'what'), rows)}\n\n{total}" if rows else "Nothing travels."
    return f"{simulated}\n\nDeployed, {traffic.deployed}."


def _states_text(card: Card) -> str:
    server, client = sizes_text(card.kept.server), sizes_text(card.kept.client)
    accuracy = "the personal models, averaged" if card.accuracy_of == "personal" else "the global model"
    return (
        f"- server: {server or 'none besides the model'}\n- client: {client or 'none'}\n"
        f"- a run's accuracy is that of {accuracy}"
    )


def _personal(card: Card) -> str:
    tuning = markdown_texts(("protocol", "training after the run"), list(card.own.tuning.items()))
    return f"A client's personal model: {card.own.what}.\n\n{tuning}"


def _models(card: Card) -> str:
    """Whether a method has a global model, personal models or both."""
    if card.accuracy_of == "personal":
        return "personal"
    return "global" if card.own.what.startswith("none") else "global and personal"


def _extra(card: Card) -> str:
    """What travels besides the model, in few words."""
    traffic = card.traffic
    down = [f"down {payload.name} {payload.bytes:,}" for payload in traffic.down_extra]
    up = [f"up {payload.name} {payload.bytes:,}" for payload in traffic.up_extra]
    other = [
        f"{exchange.when.replace('_', ' ')} {payload.name} {payload.bytes:,}"
        for exchange in traffic.exchanges
        for payload in exchange.up
    ]
    return "; ".join((*down, *up, *other)) or "–"


def _state(card: Card) -> str:
    kept = {"server": card.kept.server, "client": card.kept.client}
    return "; ".join(f"{side}: {', '.join(names)}" for side, names in kept.items() if names) or "–"


def _link(paper: str) -> str:
    """A paper's identifier, as a link if it has a known prefix."""
    for prefix, address in _LINKS.items():
        if paper.startswith(prefix):
            return f"[{paper}]({address}{paper.removeprefix(prefix)})"
    return paper
