"""Personal models: the final model fine-tuned on every client (FedDr+, Table 5), and a client's model that it keeps."""

from dataclasses import replace

from fedblade.core.method import Method
from fedblade.core.tree import Tree
from fedblade.core.views import EndView

FINE_TUNING_REVISION = 0
"""Raised by one with every change of the results of `x-ft`; runs of `x` do not depend on it."""


def finetuned(method: Method) -> Method:
    """The method whose clients train the final model for the run's epochs at the run's last rate before measurement.

    The phases are those of local training, unless the method has phases for fine-tuning (`Own.finetune`).
    """
    own = method.own
    phases = method.phases if own.finetune is None else own.finetune
    return replace(method, own=replace(own, tuning={**own.tuning, "ft": (phases,)}))


def local_model(view: EndView) -> Tree:
    """The client's model after local training, parameters and statistics."""
    return view.params | view.buffers
