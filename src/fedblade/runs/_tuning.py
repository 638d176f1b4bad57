"""Personal models after the last round: tuned as the protocol says, measured on the clients' test samples."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fedblade.core.cohort import Cohort
from fedblade.core.method import Method, Stages
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.tree import State
from fedblade.runs._client_records import ClientRecord, client_facts, global_accuracies
from fedblade.runs._evaluation import PersonalAccuracy, measured_client, personal_accuracies, personal_test_indices
from fedblade.runs._setup import Setup, plan_phases

GAPA_EPOCHS = 10
"""Epochs of fine-tuning in the protocol `gapa`."""
CHUNK = 16
"""Clients whose tuned models are in memory at the same time."""

Untuned = Mapping[int, PersonalAccuracy]
"""By client, the accuracy of the global model; empty where it was not measured."""
Curves = Mapping[int, list[PersonalAccuracy]]
"""By client, the accuracy of its personal model after every stage of tuning."""


def tuning_stages(method: Method, protocol: str) -> Stages | None:
    """The stages in which personal models are tuned before they are measured: () for none, None if not measured.

    The protocol `pers_etf` tunes by one more local update, `gapa` by ten epochs if the method has no personal models,
    `ft` if the method's name ends with `-ft`. A method may define other stages for a protocol. All other protocols
    measure the personal models that a method has.
    """
    personal_model = method.own
    if protocol in personal_model.tuning:
        return personal_model.tuning[protocol]
    match protocol:
        case "pers_etf":
            return (method.phases,)
        case "gapa" if not method.has_own_models:
            finetune = personal_model.finetune
            phases = method.phases if finetune is None else finetune
            return (tuple(replace(phase, epochs=GAPA_EPOCHS) for phase in phases),)
        case "gapa" | "ft":
            return ()
        case _:
            return personal_model.tuning.get("ft", () if method.has_own_models else None)


def measure_clients(
    setup: Setup, state: ServerState, store: ClientStore, stages: Stages, done: set[int]
) -> Iterator[ClientRecord]:
    """Tune and measure the personal models of the clients that are not in `done`; one record per client."""
    left = [int(client) for client in setup.evaluated_clients if int(client) not in done]
    for chunk in (left[i : i + CHUNK] for i in range(0, len(left), CHUNK)):
        kept = store.get_all(chunk, setup.config.federation.rounds)
        states = dict(zip(chunk, kept, strict=True))
        curves: Curves = {client: [] for client in chunk}
        untuned = global_accuracies(setup, state, chunk) if stages else {}
        first_epoch = 0
        for phases in stages:
            plans = plan_phases(setup.config, phases)
            tasks = Cohort(setup.planner, setup.config.federation.rounds, tuple(chunk), plans, first_epoch)
            states |= dict(setup.engine.adapt(state, tasks, states.get, _last_rate(setup), phases))
            _extend(curves, setup, state, states)
            first_epoch += sum(plan.most_epochs for plan in plans)
        if not stages:
            _extend(curves, setup, state, states)
        for client in chunk:
            yield _client_record(setup, state, client, curves[client], untuned)


def _last_rate(setup: Setup) -> float:
    rounds = setup.config.federation.rounds
    return setup.config.optimizer.rate(rounds - 1, rounds)


def _extend(curves: Curves, setup: Setup, state: ServerState, states: Mapping[int, State | None]) -> None:
    """Measure the personal models of the clients with test samples, and add the accuracies to their curves."""
    parts = {client: personal_test_indices(setup, client) for client in states}
    clients = (
        (measured_client(setup, state, client, states[client]), indices)
        for client, indices in parts.items()
        if len(indices)
    )
    for client, accuracy in personal_accuracies(setup, state, clients, setup.personal_test_samples):
        curves[client].append(accuracy)


def _client_record(
    setup: Setup, state: ServerState, client: int, curve: list[PersonalAccuracy], untuned: Untuned
) -> ClientRecord:
    """The line of a client in `clients.jsonl`. It has a `curve` only if there is more than one stage.

    `test_samples` is the number of samples that the personal model was measured on: 0 if it was not measured. `untuned`
    has the accuracies of the global model on the same samples, before the clients tuned it.
    """
    record = client_facts(setup, state, client) | {
        "test_samples": curve[-1].samples if curve else 0,
        "accuracy": curve[-1].percent if curve else None,
    }
    if untuned:
        record["global_accuracy"] = untuned[client].percent if client in untuned else None
    return record | ({"curve": [accuracy.percent for accuracy in curve]} if len(curve) > 1 else {})
