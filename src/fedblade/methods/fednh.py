"""FedNH: class prototypes as the classifier, moved by the server (Dai et al., AAAI 2023)."""

from dataclasses import replace

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.phase import Phase
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.tree import Tree
from fedblade.core.views import EndView, StepView
from fedblade.heads import PrototypeHead, Scale, normalise
from fedblade.losses import CrossEntropy
from fedblade.server import average, move_prototypes, scale_of


def _unit_features(view: StepView) -> Tree:
    return payloads.class_features(replace(view, features=normalise(view.features.double())))


def _directions(view: EndView) -> Tree:
    """n_{k,c}·q_{k,c} with q the direction of the mean unit feature of class c; 0 for absent classes."""
    total = view.passes["unit_class_features"]
    return {"sum": total["count"][:, None] * normalise(total["sum"]), "count": total["count"]}


@methods.register(paper="arXiv:2212.02758", tune={"rho": (0.5, 0.9, 0.99)})
def fednh(rho: float = 0.9, scale: Scale = Scale(), fix_scale: bool = False) -> Method:
    """Spread class prototypes evenly, classify by them and smooth them on the server.

    Objective: L_k = mean_i CE(s·P z_i/‖z_i‖, y_i) over body and s. P starts with orthonormal rows and is not trained:
    after training, clients send q_{k,c} = normalise(mean of z/‖z‖ over class c) and the class counts.
    Server: body and s are averaged, P_c ← normalise(ρ·P_c + (1−ρ)·normalise(Σ_k n_{k,c} q_{k,c})); classes that no
    client of the cohort holds keep their prototype. `fix_scale` sets s = 30 for the whole run, whatever `scale` says.
    Deviation: models are averaged with the run's weighting; the authors have equal weights.
    The authors' code clips gradients at the norm 10: `optimizer.clip = 10`.
    """
    if not 0 <= rho <= 1:
        raise Misconfigured(f"rho={rho!r}: expected a number from 0 (new prototypes only) to 1 (the initial ones).")

    def server(state: ServerState, sums: Sums) -> ServerState:
        return move_prototypes(average(state, sums), sums, rho=rho)

    unit_features = DataPass("unit_class_features", _unit_features)
    return Method(
        head=PrototypeHead(Scale(init=30.0, learnable=False) if fix_scale else scale),
        losses=(CrossEntropy(),),
        sums=(*payloads.MODEL, Sum("directions", _directions, bound=1e9, passes=(unit_features,), by_class=True)),
        server=server,
        phases=(Phase(trains=("body", "scale")),),
        gauges={"scale": scale_of},
    )
