"""A method's card: formula, knobs, training, what travels, state and engines, all read from the method itself.

The card is a value: `_text` writes it for the terminal and `_markdown` makes the pages of docs/methods.
"""

import inspect
import re
from dataclasses import dataclass
from typing import Any

from fedblade.cards._knobs import Knob, knobs_of
from fedblade.cards._traffic import KeptState, Traffic, measure_traffic, prepare_one_client
from fedblade.cards._training import PersonalCard, PhaseCard, TermCard, personal_of, phases_of, terms_of
from fedblade.core.registry import engines
from fedblade.methods import Composition, compose
from fedblade.runs import STARTED_ENGINES

_FULL_LINE = 116
"""Width of a docstring: a line that had room for the next word ends a paragraph."""
_PARAGRAPH_START = re.compile(r"[A-Z][a-z]+[^.:]*:\s")
"""Such as `Server:`, `Deviation:`, `Objective (Eq. 17):`."""


@dataclass(frozen=True)
class SecureSums:
    """Whether a client sends anything, and the payloads that secure sums cannot add: maxima and values per client."""

    sends: bool
    maxima: tuple[str, ...]
    single: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Whether secure sums work, in words."""
        if self.single:
            shows = "shows" if len(self.single) == 1 else "show"
            return f"no, because {' and '.join(self.single)} {shows} the server single clients"
        if self.maxima:
            kind = "a maximum" if len(self.maxima) == 1 else "maxima"
            return f"yes, except {' and '.join(self.maxima)} ({kind})"
        return "yes" if self.sends else "nothing is sent"


@dataclass(frozen=True)
class Card:
    """Everything a user wants to know about a method before running it.

    `text` has the paragraphs of the docstring after its first line, `added` what the added regularisers do, by name.
    `accuracy_of` says whose accuracy a run reports, `participation` who trains in a round. Bytes are those of the
    quickstart's model. `search_space` has the values that tuning tries, by key.
    """

    name: str
    paper: str
    summary: str
    text: tuple[str, ...]
    added: dict[str, str]
    knobs: tuple[Knob, ...]
    terms: tuple[TermCard, ...]
    participation: str
    phases: tuple[PhaseCard, ...]
    traffic: Traffic
    kept: KeptState
    accuracy_of: str
    own: PersonalCard
    secure: SecureSums
    engines: tuple[str, ...]
    search_space: dict[str, tuple[Any, ...]]


def make_card(name: str) -> Card:
    """The card of a method, or of a combination such as `fedprox+feddecorr` or `fedetf-ft`."""
    composition = compose(name)
    setup = prepare_one_client(name)
    method = setup.method
    traffic, kept = measure_traffic(setup)
    return Card(
        name=name,
        paper=composition.base.info.get("paper", ""),
        summary=composition.base.summary,
        text=_paragraphs(inspect.getdoc(composition.base.make) or ""),
        added=_added(composition),
        knobs=knobs_of(name),
        terms=terms_of(method),
        participation=method.participation,
        phases=phases_of(setup),
        traffic=traffic,
        kept=kept,
        accuracy_of=method.accuracy_of,
        own=personal_of(setup),
        secure=_secure_sums(traffic),
        engines=_built_in_engines(),
        search_space=composition.search_space,
    )


def _built_in_engines() -> tuple[str, ...]:
    """The names of this library's engines; all of them run every method."""
    registered = [entry.name for entry in engines.entries() if entry.make.__module__.startswith("fedblade.")]
    return tuple(sorted((*registered, *STARTED_ENGINES)))


def _added(composition: Composition) -> dict[str, str]:
    added = {f"+{entry.name}": entry.summary for entry in composition.added}
    return added | ({"-ft": "Clients fine-tune the final model before they are measured."} if composition.tuned else {})


def _paragraphs(text: str) -> tuple[str, ...]:
    """The paragraphs of a docstring after its first line; lines that were only cut for length are joined."""
    lines: list[str] = []
    before = ""
    for line in text.splitlines()[1:]:
        full = len(before) + 1 + len(line.split(" ", 1)[0]) > _FULL_LINE and not _PARAGRAPH_START.match(line)
        if line and before and (full or not before.endswith((".", ":"))):
            lines[-1] += f" {line.strip()}"
        elif line:
            lines.append(line.strip())
        before = line
    return tuple(lines)


def _secure_sums(traffic: Traffic) -> SecureSums:
    exchanged = [payload for exchange in traffic.exchanges for payload in exchange.up]
    sent = (*traffic.up_model, *traffic.up_extra, *exchanged)
    return SecureSums(
        sends=bool(sent),
        maxima=tuple(dict.fromkeys(payload.name for payload in sent if payload.reduce == "max")),
        single=tuple(dict.fromkeys(payload.name for payload in sent if payload.reduce == "each")),
    )
