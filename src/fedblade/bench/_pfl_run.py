"""The digits workload through pfl-research in several processes of `torchrun`, imports and their meeting excluded.

The same network, batches of the same size, weights by samples. pfl averages parameters only, so the statistics of
BatchNorm are those of the first process's clients, as they passed by.
"""

import functools
import json
import os
import sys
import time
from pathlib import Path

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data import FederatedDataset
from pfl.data.dataset import Dataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor

from fedblade.bench import _plain


class PflNet(_plain.Net):
    """The network with what pfl asks for: a loss, and metrics, which are left out because nothing else measures."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of a batch."""
        self.train()
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, _x: Tensor, _y: Tensor) -> dict[str, Weighted]:
        """Nothing, at no cost."""
        return {"none": Weighted(0.0, 1)}


def main(folder: Path) -> None:
    """All rounds, from data in memory to the last update."""
    torch.set_num_threads(1)
    work, (clients, test) = _plain.settings(folder), _plain.read(folder)
    torch.distributed.barrier()
    began = time.perf_counter()
    net = PflNet()
    net.load_state_dict(_plain.new_net(work["seed"]).state_dict())
    model = PyTorchModel(
        net,
        functools.partial(torch.optim.SGD, momentum=work["momentum"]),
        torch.optim.SGD(net.parameters(), lr=1.0),
    )
    sampler = get_user_sampler("minimize_reuse", list(range(len(clients))))
    data = FederatedDataset(lambda user: Dataset(list(clients[user]), user_id=str(user)), sampler)
    backend = SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()])
    rounds = NNAlgorithmParams(
        central_num_iterations=work["rounds"],
        evaluation_frequency=work["rounds"],
        train_cohort_size=len(clients),
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(
        local_batch_size=work["batch_size"], local_num_epochs=work["epochs"], local_learning_rate=work["lr"]
    )
    FederatedAveraging().run(rounds, backend, model, local, send_metrics_to_platform=False)
    seconds = time.perf_counter() - began
    if os.environ["RANK"] == "0":
        found = {"seconds": seconds, "accuracy": _plain.accuracy(net, test), "processes": int(os.environ["WORLD_SIZE"])}
        (folder / "result.json").write_text(json.dumps(found), encoding="utf-8")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
