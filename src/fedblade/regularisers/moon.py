"""`x+moon`: mix MOON's contrast of models into any method (FedDr+, Table 2)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method, model
from fedblade.core.registry import regularisers
from fedblade.core.views import Teacher
from fedblade.losses import ModelContrastive
from fedblade.personal import local_model
from fedblade.regularisers._mix import BETA, BETAS, mixed

PREVIOUS = "previous"
"""The client state with the client's model after its last local training."""


def contrast(tau: float, teacher_norm: Literal["eval", "batch"]) -> ModelContrastive:
    """The contrast of the received model with the client's previous model; both normalise in the same way."""
    return ModelContrastive(
        tau=tau, teacher=Teacher(norm=teacher_norm), previous=Teacher(of=PREVIOUS, norm=teacher_norm)
    )


def remembering(method: Method) -> Method:
    """The method whose clients keep their model after local training; before the first time it is the initial model."""
    if PREVIOUS in method.client_state:
        raise Misconfigured(
            f"the method already has a client state '{PREVIOUS}', which MOON's term uses for the previous model. "
            f"Leave out '+moon', or give the other state another name."
        )
    return replace(
        method,
        client_state={**method.client_state, PREVIOUS: model},
        client_update={**method.client_update, PREVIOUS: local_model},
    )


@regularisers.register(revision=1, paper="arXiv:2103.16257", tune={"beta": BETAS})
def moon(
    beta: float = BETA, tau: float = 0.5, teacher_norm: Literal["eval", "batch"] = "eval"
) -> Callable[[Method], Method]:
    """Keep features nearer to those of the received model than of the previous model: β·L + (1−β)·ℓ_con.

    The previous model of a client that takes part for the first time is the initial model w^0.
    """
    mix = mixed(beta, contrast(tau, teacher_norm))
    return lambda method: mix(remembering(method))
