"""What clients have when their round begins, and their personal models."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import Tensor

from fedblade.core.clients import Clients
from fedblade.core.passes import PassModel
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import BUFFERS, MOMENTUM, PERSONAL, Problem, Received
from fedblade.core.state import ServerState
from fedblade.core.tree import State, Tree, tree_clone, tree_select, tree_zeros


def receive_clients(
    clients: Clients,
    server: ServerState,
    tasks: Sequence[ClientTask],
    states: Sequence[State | None],
    lr: float,
    phases: Sequence[Phase] | None = None,
) -> Received:
    """The global model with each client's personal parts, and the states of server and client; no batches yet.

    Fixed tensors that `phases` (None: the method's) free are among the parameters.
    """
    problem, kept = clients.problem, [state or {} for state in states]
    method = problem.method
    freed = {name for phase in (method.phases if phases is None else phases) for name in phase.frees}
    anchor = tree_clone(server.params | problem.network.head.free(server.fixed, freed))
    counts = clients.join({}, [{"counts": task.counts} for task in tasks])["counts"]

    def join(common: Tree, name: str) -> Tree:
        return clients.join(common, [state.get(name, {}) for state in kept])

    return Received(
        round=tasks[0].round,
        seed=tasks[0].seed,
        counts=counts.to(problem.samples.labels.device),
        anchor=join(anchor, PERSONAL),
        buffers=join(tree_clone(server.buffers), BUFFERS),
        fixed=clients.join(server.fixed, [{} for _ in tasks]),
        server={name: server.extra[name] for name in method.sent},
        client=_client_states(clients, kept, method.read_state),
        momentum=join(tree_zeros(anchor), MOMENTUM) if any(MOMENTUM in state for state in kept) else None,
        lr=lr,
    )


def with_batches(clients: Clients, received: Received, tasks: Sequence[ClientTask]) -> Received:
    """What the clients received, with the batches of their tasks."""
    return replace(received, batches=clients.batches(tasks))


def personal_models(
    clients: Clients, server: ServerState, counts: Sequence[Tensor], states: Sequence[State | None]
) -> PassModel:
    """The clients' personal models, made from the states that they keep; `counts` are their samples per class.

    A client without a state has the global model, or the initial model of the track that trains its personal model.
    """
    problem, kept = clients.problem, [state or {} for state in states]
    own = [_personal_tensors(problem, state) for state in kept]

    def join(common: Tree) -> Tree:
        return clients.join(common, [tree_select(tensors, common) for tensors in own])

    return PassModel(
        params=join(server.params),
        buffers=join(server.buffers),
        fixed=join(server.fixed),
        counts=clients.join({}, [{"counts": of_client} for of_client in counts])["counts"],
        server=server.extra,
        client=_client_states(clients, kept, problem.method.client_state),
        logits=problem.method.own.logits,
    )


def _client_states(clients: Clients, kept: Sequence[State], names: Iterable[str]) -> State:
    """Client states of the method by name; a client that keeps none has the initial one."""
    start, initial = clients.problem.start, clients.problem.method.client_state

    def join(name: str) -> Tree:
        common = {} if all(name in state for state in kept) else initial[name](start)
        return clients.join(common, [state.get(name, {}) for state in kept])

    return {name: join(name) for name in names}


def _personal_tensors(problem: Problem, state: State) -> Tree:
    """The tensors of a client's personal model that may differ from the global model."""
    name, method = problem.method.own.state, problem.method
    if name is not None and name not in state and any(phase.track == name for phase in method.phases):
        tensors = method.client_state[name](problem.start)
    else:
        tensors = state.get(name or "", {})
    return state.get(PERSONAL, {}) | state.get(BUFFERS, {}) | tensors
