"""The federation on digits in pfl-research, in the processes of `torchrun`; started by `pfl`.

Imports and the first contact between the processes are not timed. Network, batch size and weights by samples are those
of the other sides. pfl averages parameters only: BatchNorm has the running statistics that the first process collects.
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

from benchmarks import plain_pytorch


class PflNet(plain_pytorch.Net):
    """The network with the loss and the metrics that pfl asks for; the metrics are a constant, as no side has any."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of a batch."""
        self.train()
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, _x: Tensor, _y: Tensor) -> dict[str, Weighted]:
        """A constant that costs nothing."""
        return {"none": Weighted(0.0, 1)}


def main(folder: Path) -> None:
    """Time all rounds, from data in memory to the last update."""
    torch.set_num_threads(1)
    settings, (clients, test) = plain_pytorch.read_settings(folder), plain_pytorch.read_data(folder)
    torch.distributed.barrier()
    began = time.perf_counter()
    net = PflNet()
    net.load_state_dict(plain_pytorch.new_net(settings["seed"]).state_dict())
    model = PyTorchModel(
        net,
        functools.partial(torch.optim.SGD, momentum=settings["momentum"]),
        torch.optim.SGD(net.parameters(), lr=1.0),
    )
    sampler = get_user_sampler("minimize_reuse", list(range(len(clients))))
    data = FederatedDataset(lambda user: Dataset(list(clients[user]), user_id=str(user)), sampler)
    backend = SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()])
    rounds = NNAlgorithmParams(
        central_num_iterations=settings["rounds"],
        evaluation_frequency=settings["rounds"],
        train_cohort_size=len(clients),
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(
        local_batch_size=settings["batch_size"], local_num_epochs=settings["epochs"], local_learning_rate=settings["lr"]
    )
    FederatedAveraging().run(rounds, backend, model, local, send_metrics_to_platform=False)
    seconds = time.perf_counter() - began
    if os.environ["RANK"] == "0":
        result = {"seconds": seconds, "accuracy": plain_pytorch.accuracy(net, test)}
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
