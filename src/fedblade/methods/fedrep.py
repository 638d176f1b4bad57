"""FedRep: personal heads, then the shared body (Collins et al., ICML 2021)."""

from dataclasses import replace
from typing import Literal

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method, Own
from fedblade.core.phase import Phase, Sgd
from fedblade.core.registry import methods
from fedblade.methods.fedper import fedper

Epochs = int | Literal["auto"]


def _epochs(name: str, value: Epochs) -> int | None:
    if value == "auto":
        return None
    if value < 1:
        raise Misconfigured(f"{name}={value!r}: expected a whole number above 0, or 'auto' for the run's epochs.")
    return value


@methods.register(paper="arXiv:2102.07078", tune={"E_h": (1, "auto"), "E_b": (1, "auto")})
def fedrep(
    E_h: Epochs = "auto",
    E_b: Epochs = "auto",
    freeze_bn: bool = True,
    eval_adapt: bool = False,
    carry_momentum: bool = False,
) -> Method:
    """Train the personal head while the body is fixed, then the shared body while the head is fixed.

    Objective: CE, E_h epochs over the head, then E_b epochs over the body, each with new momentum; "auto" is the
    run's epochs. Server: averaging of the body. With `freeze_bn` the body works as in evaluation while the head trains;
    without it, the running statistics are updated. With `eval_adapt` clients make one more local update before their
    personal models are measured after the run, as in the code of FedBABU.
    With `carry_momentum`, as in that code, both phases share one optimiser: while the head trains, the gradient of the
    body enters its momentum at a learning rate of 0, and the body's phase starts with that momentum.
    """
    head = Phase(trains=("head",), epochs=_epochs("E_h", E_h), statistics="keep" if freeze_bn else "update")
    body = Phase(trains=("body",), epochs=_epochs("E_b", E_b), carries_momentum=carry_momentum)
    if carry_momentum:
        head = replace(head, trains=("head", "body"), group_sgd={"body": Sgd(lr=0.0)})
    phases = (head, body)
    return replace(fedper(), phases=phases, own=Own(tuning={"ft": (phases,)} if eval_adapt else {}))
