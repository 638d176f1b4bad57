"""A card as plain text for a terminal of 80 columns. The knobs are TOML: they can be pasted under [method]."""

import textwrap
from collections.abc import Iterable, Mapping

from fedblade.cards._card import Card
from fedblade.cards._knobs import Knob
from fedblade.cards._traffic import Payload, Traffic
from fedblade.config.literals import literal

WIDTH = 80
MODEL = "small_cnn with 128 features, 10 classes"
"""The quickstart's model; the sizes on a card are for this model."""


def plain_text(card: Card) -> str:
    """The card, sections indented under their headings."""
    title = f"{card.name}, {card.paper}" if card.paper else card.name
    added = [f"{name}: {text}" for name, text in card.added.items()]
    head = [*wrapped([title]), "", *textwrap.wrap(card.summary, WIDTH), "", *wrapped([*card.text, *added])]
    sections = {
        "Knobs and library defaults (# where presets differ)": _knobs(card.knobs),
        f"Search space (fedblade sweep --set method={card.name} --tune)": space_lines(card),
        "Terms": _terms(card),
        "Training": _training(card),
        f"What travels ({MODEL})": _traffic(card.traffic),
        "State": _state(card),
        "Personal models": [
            f"personal model: {card.own.what}",
            *(f"{protocol}: {text}" for protocol, text in card.own.tuning.items()),
        ],
        "Secure sums": [card.secure.sentence],
        "Engines": [", ".join(card.engines)],
    }
    blocks = ["\n".join(head).rstrip()]
    for heading, lines in sections.items():
        body = lines if heading.startswith("Knobs") else wrapped(lines, indent="  ")
        blocks.append("\n".join((heading, *body)))
    return "\n\n".join(blocks)


def presets_text(knob: Knob) -> str:
    """The values that presets use instead: FedDecorr 0.001, FedDr+ 0.9 or 0.99."""
    return ", ".join(f"{paper} {' or '.join(map(literal, values))}" for paper, values in knob.presets.items())


def space_lines(card: Card) -> list[str]:
    """The values that tuning tries, a line per key."""
    return [f"{key} = {', '.join(map(literal, values))}" for key, values in card.search_space.items()]


def payload_text(payload: Payload) -> str:
    """A payload with its size, and a remark if the payload is no plain sum."""
    remarks = ["rows of the client's classes only, so the server sees which classes it has"] if payload.by_class else []
    remarks += {"sum": [], "max": ["a maximum"], "each": ["one value per client"]}[payload.reduce]
    return f"{payload.name} {payload.bytes:,} bytes" + (f" ({'; '.join(remarks)})" if remarks else "")


def moment(when: str, clients: str) -> str:
    """When an exchange happens, and with whom."""
    return f"{when.replace('_', ' ')}, {'the cohort' if clients == 'cohort' else 'all clients'}"


def sizes_text(kept: Mapping[str, int]) -> str:
    """The names and sizes of state."""
    return ", ".join(f"{name} {size:,} bytes" for name, size in kept.items())


def wrapped(lines: Iterable[str], width: int = WIDTH, indent: str = "") -> list[str]:
    """Lines wrapped at a width; the second and later parts of a line are indented further."""
    return [
        part
        for line in lines
        for part in textwrap.wrap(
            line,
            width,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _knobs(knobs: Iterable[Knob]) -> list[str]:
    """One line of TOML per knob. Values of presets are a comment after it, or above it if they do not fit."""
    lines: list[str] = []
    for knob in knobs:
        line, remark = f"  {knob.key} = {literal(knob.default)}", presets_text(knob)
        if remark and len(line) + len(remark) + 4 > WIDTH:
            lines += textwrap.wrap(remark, WIDTH, initial_indent="  # ", subsequent_indent="  # ")
            remark = ""
        lines.append(f"{line}  # {remark}" if remark else line)
    return lines or ["  # none"]


def _terms(card: Card) -> list[str]:
    return [f"{term.name}: {term.strength}{'' if term.on else ' (off)'}. {term.meaning}" for term in card.terms]


def _training(card: Card) -> list[str]:
    everyone = ["every client trains in every round"] if card.participation == "all" else []
    sentences = [phase.sentence for phase in card.phases]
    return everyone + ([f"{i}. {text}" for i, text in enumerate(sentences, 1)] if len(sentences) > 1 else sentences)


def _traffic(traffic: Traffic) -> list[str]:
    down = [f"model {traffic.down_model:,} bytes"] if traffic.down_model else []
    down += map(payload_text, traffic.down_extra)
    model = f"model {sum(payload.bytes for payload in traffic.up_model):,} bytes"
    up = [f"{model}: {', '.join(map(payload_text, traffic.up_model))}"] if traffic.up_model else []
    up += [f"besides: {', '.join(map(payload_text, traffic.up_extra))}"] if traffic.up_extra else []
    lines = [f"down each round: {', '.join(down) or 'nothing'}", f"up each round: {'; '.join(up) or 'nothing'}"]
    lines += [f"down once: {payload_text(payload)}" for payload in traffic.once]
    for exchange in traffic.exchanges:
        sent = ", ".join(map(payload_text, exchange.up)) or "nothing"
        received = f"{exchange.bytes_down:,} bytes down; " if exchange.bytes_down else ""
        lines.append(f"{moment(exchange.when, exchange.clients)}: {received}up {sent}")
    lines.append(f"a client's first round: {traffic.bytes_down:,} bytes down, {traffic.bytes_up:,} bytes up")
    return [*lines, f"deployed: {traffic.deployed}"]


def _state(card: Card) -> list[str]:
    return [
        f"server: {sizes_text(card.kept.server) or 'none besides the model'}",
        f"client: {sizes_text(card.kept.client) or 'none'}",
        f"accuracy of: {'the personal models, averaged' if card.accuracy_of == 'personal' else 'the global model'}",
    ]
