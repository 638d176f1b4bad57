"""Parts with plain names: `fedblade run --set method=hello`, `fedblade list methods`."""

from dataclasses import replace

from fedblade.api import Method, fedavg, register_method
from fedblade.losses import CrossEntropy, Proximal


@register_method(paper="none")
def hello(pull: float = 0.1) -> Method:
    """FedAvg that stays near the global model."""
    return replace(fedavg(), losses=(CrossEntropy(), Proximal(weight=pull)))
