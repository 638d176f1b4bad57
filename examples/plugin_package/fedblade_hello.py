"""Parts with plain names: `fedblade run --set method=hello`, `fedblade list methods`."""

from dataclasses import replace

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.losses import CrossEntropy, Proximal
from fedblade.methods.fedavg import fedavg


@methods.register(paper="none")
def hello(pull: float = 0.1) -> Method:
    """FedAvg that stays near the global model."""
    return replace(fedavg(), losses=(CrossEntropy(), Proximal(weight=pull)))
