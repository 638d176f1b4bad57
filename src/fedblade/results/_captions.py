"""What captions say of methods without a global model, and of methods that are not drawn."""

from collections.abc import Sequence

from fedblade.results._format import listing
from fedblade.results._groups import Group
from fedblade.results._record import number

MEAN_OF_OWN = "the mean over the clients' own models"
_APART, _SHARED = "their own test samples", "the whole test set, the same for all clients"


def measured_on(own: Sequence[tuple[str, bool]]) -> str:
    """What clients' own models were measured on, of (label, whether on samples of the clients' own)."""
    apart, shared = ([label for label, each in own if each is kind] for kind in (True, False))
    if apart and shared:
        return f"{_APART} ({listing(apart)}) or on {_SHARED} ({listing(shared)})"
    return _APART if apart else _SHARED


def drawn_sentence(
    groups: Sequence[Group], drawn: Sequence[object], *, of_model: bool = True, own: str = MEAN_OF_OWN
) -> str:
    """Whose values are means over clients' own models, and which groups have none; empty where all are as usual.

    `drawn` has None for each group without values. With `of_model` the values are those of the global model, otherwise
    of what clients send. `own` is what is drawn where there is no global model.
    """
    shown = [group for group, value in zip(groups, drawn, strict=True) if value is not None]
    absent = [group for group, value in zip(groups, drawn, strict=True) if value is None]
    silent = [group for group in absent if not of_model and _sends_nothing(group)]
    others = [group.label for group in absent if group not in silent]
    said = [own_sentence(shown, own)] if of_model else []
    said += [f"Left out: {listing([group.label for group in silent])}, where clients send no model."] if silent else []
    said += [f"Not measured: {listing(others)}."] if others else []
    return " ".join(filter(None, said))


def own_sentence(groups: Sequence[Group], drawn: str = MEAN_OF_OWN) -> str:
    """What is drawn of the groups without a global model, empty where each has one."""
    own = [group.label for group in groups if group.personal]
    if not own:
        return ""
    if len(own) == len(groups) > 1:
        return f"No method here has a global model: shown is {drawn}."
    have, them = ("has", "it") if len(own) == 1 else ("have", "them")
    return f"{listing(own)} {have} no global model; shown for {them} is {drawn}."


def _sends_nothing(group: Group) -> bool:
    return all(number(run.summary.get("bytes_up")) == 0 for run in group.runs)
