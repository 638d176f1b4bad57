"""Modules as people bring them, of five kinds, and small data for each. Nothing here needs the library."""

import numpy as np
import torch
from torch import nn


class Mlp(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 16)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


class Cnn(nn.Module):
    """Named layers, and a BatchNorm."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        return self.fc(self.pool(self.norm(self.conv(x)).relu()).flatten(1))


class Classifier(nn.Module):
    """A part of `Nested`."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(16, 12)
        self.logits = nn.Linear(12, 3)

    def forward(self, z):
        return self.logits(torch.tanh(self.dense(z)))


class Nested(nn.Module):
    """The last layer is an attribute of an attribute."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU())
        self.head = nn.ModuleDict({"classifier": Classifier()})

    def forward(self, x):
        return self.head["classifier"](self.encoder(x))


def sequential():
    """Layers without names."""
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


class Words(nn.Module):
    """An embedding and a layer of a transformer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.encoder = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True)
        self.answer = nn.Linear(16, 3)

    def forward(self, tokens):
        return self.answer(self.encoder(self.embedding(tokens.long())).mean(1))


MODULES = {"mlp": Mlp, "cnn": Cnn, "nested": Nested, "sequential": sequential, "words": Words}


def arrays(kind):
    """(x, y, x_test, y_test) for a module of this kind: vectors, pictures or words."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 240)
    if kind == "words":
        x = rng.integers(0, 20, (240, 6))
        x[:, 0] = y
    else:
        x = rng.normal(size=(240, 1, 6, 6) if kind == "cnn" else (240, 8)).astype("float32")
        x.reshape(240, -1)[:, :3] += 2 * np.eye(3, dtype="float32")[y]
    return x[:180], y[:180], x[180:], y[180:]
