"""How a method trains: its terms, its phases, and how personal models are tuned after the run."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from fedblade.core.method import Method, Stages
from fedblade.core.phase import ALL_GROUPS, GROUPS, Phase, Sgd
from fedblade.core.terms import AnyTerm, FeatureTerm, GradientTerm, Term, active
from fedblade.core.words import listing
from fedblade.runs import Setup, tuning_stages

_PROTOCOLS = ("ft", "pers_etf", "gapa", "other protocols")


@dataclass(frozen=True)
class TermCard:
    """A term of the local loss: its strength, whether it is on by default, and what it is."""

    name: str
    strength: str
    on: bool
    meaning: str


@dataclass(frozen=True)
class PhaseCard:
    """A phase of local training: the model, the groups that train, for how long, on which terms, and remarks."""

    model: str
    trains: tuple[str, ...]
    lasts: str
    terms: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The phase in one line."""
        whose = "" if self.model == "received" else f" of {self.model}"
        groups = ", ".join(self.trains) or "nothing"
        on = " + ".join(self.terms) or "no term"
        remarks = f" ({'; '.join(self.remarks)})" if self.remarks else ""
        return f"{groups}{whose} for {self.lasts} on {on}{remarks}"


@dataclass(frozen=True)
class PersonalCard:
    """Personal models: what they are, and by protocol how they are tuned before they are measured."""

    what: str
    tuning: Mapping[str, str]


def terms_of(method: Method) -> tuple[TermCard, ...]:
    """The terms that the phases use, without repetition."""
    used: list[AnyTerm] = []
    for phase in method.phases:
        ahead = phase.lookahead.losses if phase.lookahead is not None else None
        for term in (*(ahead or ()), *(method.losses if phase.losses is None else phase.losses)):
            if term not in used:
                used.append(term)
    return tuple(TermCard(term.name, _strength(term), bool(active([term])), _meaning(term)) for term in used)


def phases_of(setup: Setup) -> tuple[PhaseCard, ...]:
    """The phases of a round."""
    return tuple(_phase(setup, phase) for phase in setup.method.phases)


def personal_of(setup: Setup) -> PersonalCard:
    """What a client's personal model is, and how it is tuned."""
    method = setup.method
    parts = [f"the client's own {listing(method.personal)}"] if method.personal else []
    parts += [f"the model in the client state '{method.own.state}'"] if method.own.state else []
    parts += ["its own normalisation statistics"] if method.buffers == "local" else []
    parts += ["a prediction of its own"] if method.own.logits else []
    tuning = {protocol: _tuning(setup, tuning_stages(method, protocol)) for protocol in _PROTOCOLS}
    return PersonalCard(listing(parts) if parts else "none unless tuned", tuning)


def _tuning(setup: Setup, stages: Stages | None) -> str:
    if stages is None:
        return "not measured"
    sentences = [", then ".join(_phase(setup, phase).sentence for phase in stage) for stage in stages]
    counted = [(sentence, len(list(same))) for sentence, same in groupby(sentences)]
    parts = [
        sentence if count == 1 else f"{count} times, measured every time: {sentence}" for sentence, count in counted
    ]
    return "; measured; ".join(parts) or "measured without tuning"


def _strength(term: AnyTerm) -> str:
    if not isinstance(term, FeatureTerm):
        return f"weight {term.weight:g}"
    fixed = term.balance is None
    strength = f"weight {term.weight:g}" if fixed else f"balanced, {term.balance:g} of the supervised gradient"
    return f"{strength}, reached after {term.warmup} rounds" if term.warmup else strength


def _meaning(term: AnyTerm) -> str:
    """The first line of the term's docstring, and its teachers."""
    text = (inspect.getdoc(type(term)) or "").partition("\n")[0].rstrip(".")
    remarks = ["added as a gradient"] if isinstance(term, GradientTerm) else []
    for teacher in term.teachers if isinstance(term, Term) else ():
        model = "the received model" if teacher.of == "anchor" else f"the client state '{teacher.of}'"
        remarks.append(f"teacher: {model}" + (", statistics of the batch" if teacher.norm == "batch" else ""))
    return "; ".join((text, *remarks))


def _phase(setup: Setup, phase: Phase) -> PhaseCard:
    losses = setup.method.losses if phase.losses is None else phase.losses
    return PhaseCard(
        model=_trained_model(setup.method, phase),
        trains=_groups(setup, phase),
        lasts=_duration(phase),
        terms=_names(losses),
        remarks=_remarks(phase, losses, setup.method.clip),
    )


def _trained_model(method: Method, phase: Phase) -> str:
    if phase.track is None:
        return "received"
    kind = "draft" if phase.track in method.drafts else "model in the client state"
    return f"the {kind} '{phase.track}'"


def _groups(setup: Setup, phase: Phase) -> tuple[str, ...]:
    """The groups that train and have parameters in the quickstart's network."""
    network, params = setup.problem.network, setup.problem.start.params
    present = [group for group in GROUPS if network.names_in((group,), params)]
    if set(present) & set(ALL_GROUPS) <= set(phase.trains):
        return ("all parameters",)
    return tuple(group for group in phase.trains if group in present)


def _duration(phase: Phase) -> str:
    epochs = "the run's epochs or steps" if phase.epochs is None else f"{phase.epochs} epoch{'s' * (phase.epochs != 1)}"
    return epochs if phase.steps is None else f"{epochs}, at most {phase.steps} step{'s' * (phase.steps != 1)}"


def _names(terms: Iterable[AnyTerm]) -> tuple[str, ...]:
    return tuple(term.name for term in active(tuple(terms)))


def _remarks(phase: Phase, losses: tuple[AnyTerm, ...], clip: float | None) -> tuple[str, ...]:
    remarks = [f"{which}: {text}" for which, text in _optimisers(phase) if text]
    if phase.carries_momentum:
        remarks.append("continues with the momentum of the phase before")
    if clip is not None:
        remarks.append(f"gradients clipped at norm {clip:g}")
    if phase.lookahead is not None:
        first = phase.lookahead.losses
        batch = " on a second batch" if phase.lookahead.fresh_batch else ""
        names = " + ".join(_names(losses if first is None else first)) or "no term"
        along = "momentum" if phase.lookahead.momentum else "gradient"
        remarks.append(f"look-ahead: the gradient{batch} is taken after a trial step along the {along} of {names}")
    if phase.frees:
        remarks.append(f"also trains {listing(phase.frees)}")
    if phase.statistics == "keep":
        remarks.append("normalisation statistics do not change")
    return tuple(remarks)


def _optimisers(phase: Phase) -> list[tuple[str, str]]:
    """Optimiser settings that differ from the run's, for all groups and for single groups."""

    def text(sgd: Sgd) -> str:
        values = {"lr": sgd.lr, "momentum": sgd.momentum, "weight_decay": sgd.weight_decay}
        return ", ".join(f"{key} {value:g}" for key, value in values.items() if value is not None)

    return [("optimiser", text(phase.sgd)), *((group, text(sgd)) for group, sgd in phase.group_sgd.items())]
