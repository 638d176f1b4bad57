"""The losses in a plain PyTorch loop: no federation, no configuration, just functions of tensors.

A network is trained on the digits with a fixed simplex classifier, once with and once without decorrelation. The
effective rank says how many dimensions the features use.
"""

import torch
from torch import nn

from fedblade import diagnostics, heads, losses
from fedblade.data.digits import digits


def train(weight: float, epochs: int = 5) -> tuple[float, float]:
    """Train with `weight` on the decorrelation term; returns test accuracy in percent and effective rank."""
    torch.manual_seed(0)
    data = digits()
    inputs, test = (torch.from_numpy(part.inputs).float() / 16 for part in (data.train, data.test))
    labels, test_labels = (torch.from_numpy(part.labels) for part in (data.train, data.test))
    etf = heads.simplex_etf(64, data.num_classes)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(64):
            features = network(inputs[batch])
            loss = losses.dot_regression(features, labels[batch], etf) + weight * losses.lddecorr(features)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        features = network(test)
        accuracy = ((features @ etf).argmax(1) == test_labels).float().mean().item() * 100
    return accuracy, diagnostics.effective_rank(features)


def main() -> None:
    """Compare the two."""
    for weight in (0.0, 0.0005):
        accuracy, rank = train(weight)
        print(f"decorrelation {weight}: accuracy {accuracy:.1f} %, effective rank {rank:.1f} of 64")


if __name__ == "__main__":
    main()
