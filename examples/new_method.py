"""A federated method from scratch in under 40 lines of code: clients are judged relative to what everybody holds.

A client that holds few classes learns first of all which these are, and the average of many such models swings with
every cohort. If its loss adds the log-odds of a class being here rather than anywhere, log n_{k,c} − log N_c, the model
need not learn them: what it learns is what tells the classes apart. N_c, how many samples of a class the server has
heard of, is state of the server that grows by a sum of the clients' counts and travels to the next cohort, so a class
that is rare everywhere is not mistaken for one that is rare here.

Run it as a script for a comparison with FedAvg, or by reference like any other method:

    fedblade run --set method=examples/new_method.py:relative --set method.strength=0.5
    fedblade compare --methods fedavg,examples/new_method.py:relative,examples/new_method.py:relative+feddecorr
    fedblade show examples/new_method.py:relative
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

import fedblade
from fedblade.api import InitView, Method, ServerState, StepView, Sum, Sums, Term, TermValue, Tree, average, fedavg
from fedblade.losses import cross_entropy


@dataclass(frozen=True, kw_only=True)
class RelativeCrossEntropy(Term):
    """The loss: mean_i CE(logits_i + s·log((n_k + 1)/(N + 1)), y_i). A term sees one client and one batch."""

    name: ClassVar[str] = "supervised"
    supervised: ClassVar[bool] = True
    strength: float

    def __call__(self, view: StepView) -> TermValue:
        """The client's class counts come with the view, as does what the server sent and which rows are real."""
        odds = torch.log((view.counts + 1) / (view.server["heard"]["of"] + 1)).to(view.logits)
        return TermValue(cross_entropy(view.logits + self.strength * odds, view.labels, mask=view.mask))


def nobody_yet(view: InitView) -> Tree:
    """The server's state before the first round: no sample of any class."""
    return {"of": view.params["head.bias"].new_zeros(view.num_classes)}


def server(state: ServerState, sums: Sums) -> ServerState:
    """Average as FedAvg does and add what was heard of the classes."""
    before = state.extra["heard"]["of"]
    heard = {"of": before + sums["counts"]["of"].to(before.dtype)}
    return average(state, sums).replace(extra={**state.extra, "heard": heard})


def relative(strength: float = 1.0) -> Method:
    """Judge every client relative to what all clients hold.

    Objective: L_k = mean_i CE(W z_i + b + s·log((n_k + 1)/(N + 1)), y_i), n_k the client's samples per class and N
    those of all cohorts so far. Server: averaging, N ← N + Σ_k n_k. Prediction: argmax_c w_cᵀz + b_c.
    """
    # Only sums leave a client, each of them named: the model's, and its class counts.
    counts = Sum("counts", lambda view: {"of": view.counts}, bound=1e9, by_class=True)
    losses, sums = (RelativeCrossEntropy(strength=strength),), (*fedavg().sums, counts)
    return replace(fedavg(), losses=losses, sums=sums, server=server, server_state={"heard": nobody_yet})


def main(rounds: int = 20, seeds: tuple[int, ...] = (1, 2, 3)) -> None:
    """Compare it with FedAvg on the digits; a seed gives both the same clients, cohorts, batches and first weights."""
    for method in ("fedavg", f"{__file__}:relative"):
        summaries = [fedblade.run(method=method, rounds=rounds, seed=seed).summary for seed in seeds]
        scores = " ".join(f"{summary['last10_accuracy']:5.1f}" for summary in summaries)
        print(f"{method.rpartition(':')[2]:<8} {scores}  % accuracy, mean of the last ten rounds, by seed")


if __name__ == "__main__":
    main()
