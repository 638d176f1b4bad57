"""Clients' own models after the run: tuned as the protocol says, measured on the clients' own samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

from fedblade.core.cohort import Cohort
from fedblade.core.method import Method, Stages
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.tree import State
from fedblade.runs._evaluation import OwnAccuracy, holder, own_accuracies, own_part, own_samples
from fedblade.runs._setup import Setup, plan_phases

GAPA_EPOCHS = 10
"""Epochs of fine-tuning by the protocol `gapa`."""
CHUNK = 16
"""Clients whose tuned models are in memory at a time."""


def stages_after_run(method: Method, protocol: str) -> Stages | None:
    """How own models are tuned before they are measured: () not at all, None if they are not measured.

    The protocol `pers_etf` tunes by one more local update, `gapa` by ten epochs where clients have no model of their
    own, `ft` where the method's name ends with `-ft`; a method may say otherwise. Other protocols measure what a
    method has.
    """
    own = method.own
    if protocol in own.tuning:
        return own.tuning[protocol]
    match protocol:
        case "pers_etf":
            return (method.phases,)
        case "gapa" if not method.has_own_models:
            phases = method.phases if own.finetune is None else own.finetune
            return (tuple(replace(phase, epochs=GAPA_EPOCHS) for phase in phases),)
        case "gapa" | "ft":
            return ()
        case _:
            return own.tuning.get("ft", () if method.has_own_models else None)


def measure_clients(
    setup: Setup, state: ServerState, store: ClientStore, stages: Stages, done: set[int]
) -> Iterator[dict[str, Any]]:
    """One row per client that is not `done`: what it trained on, and the accuracy of its own model after each stage."""
    left = [int(client) for client in setup.measured if int(client) not in done]
    for chunk in (left[i : i + CHUNK] for i in range(0, len(left), CHUNK)):
        states = {client: store.get(client, setup.config.federation.rounds) for client in chunk}
        curves: dict[int, list[OwnAccuracy]] = {client: [] for client in chunk}
        first_epoch = 0
        for phases in stages:
            plans = plan_phases(setup.config, phases)
            tasks = Cohort(setup.planner, setup.config.federation.rounds, tuple(chunk), plans, first_epoch)
            states |= dict(setup.engine.adapt(state, tasks, states.get, _last_rate(setup), phases))
            _record(setup, state, states, curves)
            first_epoch += sum(plan.most_epochs for plan in plans)
        if not stages:
            _record(setup, state, states, curves)
        for client in chunk:
            yield _row(setup, state, client, curves[client])


def _last_rate(setup: Setup) -> float:
    rounds = setup.config.federation.rounds
    return setup.config.optimizer.rate(rounds - 1, rounds)


def _record(
    setup: Setup, state: ServerState, states: Mapping[int, State | None], curves: Mapping[int, list[OwnAccuracy]]
) -> None:
    """Add the accuracy of each client's own model to its curve, if the client has samples to measure it on."""
    parts = {client: own_part(setup, client) for client in states}
    clients = ((holder(setup, state, client, states[client]), mine) for client, mine in parts.items() if len(mine))
    for client, accuracy in own_accuracies(setup, state, clients, own_samples(setup)):
        curves[client].append(accuracy)


def _row(setup: Setup, state: ServerState, client: int, curve: list[OwnAccuracy]) -> dict[str, Any]:
    """What is known of a client at the end; `curve` only where there is more than one stage.

    `test_samples` are those that its own model was measured on, none where it was not measured.
    """
    counts = setup.clients.train.counts(client, max(state.round - 1, 0))
    row: dict[str, Any] = {
        "client": client,
        "train_samples": int(counts.sum()),
        "num_classes": int((counts > 0).sum()),
        "test_samples": curve[-1].samples if curve else 0,
        "accuracy": curve[-1].percent if curve else None,
    }
    return row | ({"curve": [each.percent for each in curve]} if len(curve) > 1 else {})


def spread(rows: Sequence[Mapping[str, Any]], key: str = "accuracy") -> dict[str, Any]:
    """Mean, deviation and worst tenth of `key` over the clients that have it, and the number of those that do not.

    The deviation divides by n: these clients are all there are to tell of, and no sample of others.
    """
    values = sorted(float(row[key]) for row in rows if row.get(key) is not None)
    if not values:
        return {}
    tenth = values[: max(1, len(values) // 10)]
    curves = [row["curve"] for row in rows if row.get("curve")]
    return {
        "personal_accuracy": fmean(values),
        "personal_std": pstdev(values),
        "personal_worst_decile": fmean(tenth),
        "personal_min": values[0],
        "clients_without_test_samples": len(rows) - len(values),
        **({"personal_curve": [fmean(point) for point in zip(*curves, strict=True)]} if curves else {}),
    }
