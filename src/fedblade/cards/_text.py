"""A card as plain text for a terminal of 80 columns. The knobs are TOML: they can be pasted under [method]."""

import textwrap
from collections.abc import Iterable, Mapping

from fedblade.cards._card import Card
from fedblade.cards._knobs import Knob
from fedblade.cards._traffic import Payload, Traffic
from fedblade.config.literals import literal

WIDTH = 80
MODEL = "small_cnn with 128 features, 10 classes"
"""The quickstart's model, whose sizes a card gives."""


def plain_text(card: Card) -> str:
    """The card, sections indented under their headings."""
    title = f"{card.name}, {card.paper}" if card.paper else card.name
    added = [f"{name}: {text}" for name, text in card.added.items()]
    head = [*wrapped([title]), "", *textwrap.wrap(card.summary, WIDTH), "", *wrapped([*card.text, *added])]
    sections = {
        "Knobs and library defaults (# where presets differ)": _knobs(card.knobs),
        "Terms": _terms(card),
        "Training": _training(card),
        f"What travels ({MODEL})": _traffic(card.traffic),
        "State": _state(card),
        "Own models": [f"what: {card.own.what}", *(f"{key}: {text}" for key, text in card.own.tuning.items())],
        "Secure sums": [card.secure.sentence],
        "Engines": [", ".join(card.engines)],
    }
    blocks = ["\n".join(head).rstrip()]
    for heading, lines in sections.items():
        body = lines if heading.startswith("Knobs") else wrapped(lines, indent="  ")
        blocks.append("\n".join((heading, *body)))
    return "\n\n".join(blocks)


def value_text(value: object) -> str:
    """A knob's value as TOML."""
    return literal(value)


def presets_text(knob: Knob) -> str:
    """What presets use instead: FedDecorr 0.001, FedDr+ 0.9 or 0.99."""
    told = [f"{paper} {' or '.join(value_text(each) for each in values)}" for paper, values in knob.presets.items()]
    return ", ".join(told)


def payload_text(payload: Payload) -> str:
    """A payload with its size and, if it is no plain sum, what it is."""
    remarks = ["rows of the client's classes, which shows which these are"] if payload.by_class else []
    remarks += {"sum": [], "max": ["a maximum"], "each": ["clients kept apart"]}[payload.reduce]
    return f"{payload.name} {payload.bytes:,} bytes" + (f" ({'; '.join(remarks)})" if remarks else "")


def moment(when: str, clients: str) -> str:
    """When an exchange happens, and with whom."""
    return f"{when.replace('_', ' ')}, {'the cohort' if clients == 'cohort' else 'all clients'}"


def sizes_text(kept: Mapping[str, int]) -> str:
    """Names of state with their sizes."""
    return ", ".join(f"{name} {size:,} bytes" for name, size in kept.items())


def wrapped(lines: Iterable[str], width: int = WIDTH, indent: str = "") -> list[str]:
    """Lines cut at a width; what is cut off is indented further."""
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
    """One line of TOML per knob, what presets use in a comment behind it, or above it where that is too long."""
    lines: list[str] = []
    for knob in knobs:
        line, remark = f"  {knob.key} = {value_text(knob.default)}", presets_text(knob)
        if remark and len(line) + len(remark) + 4 > WIDTH:
            lines += textwrap.wrap(remark, WIDTH, initial_indent="  # ", subsequent_indent="  # ")
            remark = ""
        lines.append(f"{line}  # {remark}" if remark else line)
    return lines or ["  # none"]


def _terms(card: Card) -> list[str]:
    return [f"{each.name}: {each.strength}{'' if each.on else ' (off)'}. {each.meaning}" for each in card.terms]


def _training(card: Card) -> list[str]:
    everyone = ["every client trains in every round"] if card.participation == "all" else []
    sentences = [phase.sentence for phase in card.phases]
    return everyone + ([f"{i}. {each}" for i, each in enumerate(sentences, 1)] if len(sentences) > 1 else sentences)


def _traffic(traffic: Traffic) -> list[str]:
    down = [f"model {traffic.down_model:,} bytes"] if traffic.down_model else []
    down += [payload_text(each) for each in traffic.down_extra]
    model = f"model {sum(each.bytes for each in traffic.up_model):,} bytes"
    up = [f"{model}: {', '.join(payload_text(each) for each in traffic.up_model)}"] if traffic.up_model else []
    up += [f"besides: {', '.join(payload_text(each) for each in traffic.up_extra)}"] if traffic.up_extra else []
    lines = [f"down each round: {', '.join(down) or 'nothing'}", f"up each round: {'; '.join(up) or 'nothing'}"]
    lines += [f"down once: {payload_text(each)}" for each in traffic.once]
    for each in traffic.exchanges:
        sent = ", ".join(payload_text(payload) for payload in each.up) or "nothing"
        needed = f"{each.bytes_down:,} bytes down; " if each.bytes_down else ""
        lines.append(f"{moment(each.when, each.clients)}: {needed}up {sent}")
    lines.append(f"a client's first round: {traffic.bytes_down:,} bytes down, {traffic.bytes_up:,} bytes up")
    return [*lines, f"deployed: {traffic.deployed}"]


def _state(card: Card) -> list[str]:
    return [
        f"server: {sizes_text(card.kept.server) or 'none besides the model'}",
        f"client: {sizes_text(card.kept.client) or 'none'}",
        f"accuracy of: {'the mean over own models' if card.accuracy_of == 'personal' else 'the global model'}",
    ]
