"""One client's part in what engines do with groups of clients."""

from fedblade.core.one_client import OneClient
from fedblade.core.outcome import LocalResult, StepLog, adapt_clients


def adapt_client(problem, server, task, state, lr, phases):
    """Train a client's personal model on `phases`; the result has the state that the client keeps."""
    (kept,) = adapt_clients(OneClient(problem), server, [task], [state], lr, phases)
    return LocalResult(None, kept, StepLog(), 0)
