"""Refuses combinations of participation, methods and data that have no meaning."""

from fedblade.config.run_config import UNIFORM, RunConfig
from fedblade.core.errors import Unsupported
from fedblade.core.method import Method
from fedblade.partitions import ClientTests


def check_participation(config: RunConfig, method: Method, clients: ClientTests) -> None:
    """Refuse a choice of clients that the method does not use, and unseen clients that have no model or no samples."""
    name = config.method.name
    if method.participation == "all" and config.participation.name != UNIFORM:
        raise Unsupported(
            f"method '{name}' trains every client in every round, so that participation = "
            f"'{config.participation.name}' has no effect. Leave participation out, or use another method."
        )
    if not config.federation.unseen:
        return
    if method.has_own_models or method.accuracy_of == "personal":
        raise Unsupported(
            f"federation.unseen = {config.federation.unseen:g} needs a model for clients that never train, and the "
            f"clients of method '{name}' predict with models of their own. Use a method with one global model, such as "
            f"fedavg, or fedavg-ft, which tunes it on each client."
        )
    if clients.is_shared:
        raise Unsupported(
            f"federation.unseen = {config.federation.unseen:g} compares clients on their own test samples, and with "
            f"dataset.test_split = '{config.dataset_settings.test_split}' all clients share one test set. Set "
            f"test_split=matched (test samples in the mix of each client's labels) or test_split=holdout."
        )
