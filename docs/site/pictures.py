"""The pictures of the pages that explain, each made from runs: `python -m docs.site.pictures` in the repository's root.

It trains on the embedded digits for a few minutes, writes docs/images/explain-*.svg, and prints the numbers
that the pages quote.
"""

import json
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

import fedblade
from fedblade import heads

FOLDER = Path(__file__).parents[1] / "images"
GREY, BLUE, RED, GREEN = "#808690", "#4c7fd9", "#d9603b", "#3a9d6b"
"""Colours that can be read on a white page and on a dark one; the pictures have no background."""
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "fedblade", "font.size": 10, "font.family": "sans-serif",
    "text.color": GREY, "axes.edgecolor": GREY, "axes.labelcolor": GREY, "xtick.color": GREY, "ytick.color": GREY,
    "axes.spines.top": False, "axes.spines.right": False, "savefig.transparent": True, "legend.frameon": False,
}  # fmt: skip
SEED = 1


def main() -> None:
    """Train, draw and print."""
    mpl.use("svg")
    mpl.rcParams.update(STYLE)
    runs = {
        "no skew": fedblade.run("quickstart", method="fedavg", partition="iid", seed=SEED),
        "FedAvg": fedblade.run("quickstart", method="fedavg", seed=SEED),
    }
    label_skew(runs)
    collapse()
    simplex(runs)
    one_computation()
    reproducible(runs["FedAvg"])


def label_skew(runs: dict[str, fedblade.Result]) -> None:
    """Who holds which digits, and the accuracy round by round with and without skew."""
    with tempfile.TemporaryDirectory() as folder:
        counts = table(Path(folder))
    left, right = axes("left: samples per client and class", "right: test accuracy")
    clients, classes = counts.nonzero()
    left.scatter(clients, classes, s=counts[clients, classes] * 1.3, color=BLUE, alpha=0.75, linewidths=0)
    left.set(xlabel="client", ylabel="digit", xticks=range(0, 20, 5), yticks=range(10))
    for name, colour in (("no skew", GREEN), ("FedAvg", RED)):
        label = name if name == "no skew" else "label skew"
        right.plot(*curve(runs[name]), color=colour, label=label)
    right.set(xlabel="round", ylabel="test accuracy in %", ylim=(0, 100))
    right.legend(loc="lower right")
    save("label-skew")
    held = (counts > 0).sum(1)
    print(f"classes per client: {held.mean():.1f} on average, from {held.min()} to {held.max()}")
    print(f"share of the most frequent class of a client: {(counts.max(1) / counts.sum(1)).mean():.0%} on average")
    for name in ("no skew", "FedAvg"):
        rounds, accuracies = curve(runs[name])
        first = next(round_ for round_, value in zip(rounds, accuracies, strict=True) if value >= 90)
        print(f"{name}: 90 % in round {first}, final {accuracies[-1]:.1f} %")


def collapse() -> None:
    """How many directions a client's model uses after its training, and those of the averaged model."""
    two = {"partition": "pathological", "classes_per_client": 2}
    settings = {
        "FedAvg, no skew": {"method": "fedavg", "partition": "iid"},
        "FedAvg, two digits each": {"method": "fedavg", **two},
        "FedETF, two digits each": {"method": "fedetf", **two},
    }
    left, right = axes("left: one client's model, round 5", "right: effective rank, round by round")
    for (name, keys), colour in zip(settings.items(), (GREEN, RED, BLUE), strict=True):
        keys |= {"metrics": ["accuracy", "local_spectrum", "spectrum"], "diagnostics_every": 5}
        result = fedblade.run("quickstart", rounds=20, epochs=10, seed=SEED, **keys)
        rows = result.diagnostics
        values = np.array(rows[0]["local_spectrum"]).clip(min=1e-12)
        left.plot(range(1, len(values) + 1), values / values.sum(), color=colour, label=name)
        rounds = [row["round"] for row in rows]
        local = [rank_of(row["local_spectrum"]) for row in rows]
        whole = [rank_of(row["spectrum"]) for row in rows]
        right.plot(rounds, local, color=colour, marker="o", markersize=4)
        right.plot(rounds, whole, color=colour, linestyle=":")
        numbers = [" ".join(f"{rank:.1f}" for rank in ranks) for ranks in (local, whole)]
        print(f"{name}: rank in rounds {rounds}: client {numbers[0]}; average {numbers[1]}")
    left.set(xlabel="direction", ylabel="share of the variance", yscale="log", ylim=(1e-6, 1), xlim=(0, 60))
    left.legend(loc="upper right", fontsize=8)
    right.set(xlabel="round", ylabel="directions", ylim=(0, 25), xticks=rounds)
    save("dimensional-collapse")


def rank_of(spectrum: list[float]) -> float:
    """The exponential of the entropy of the normalised eigenvalues."""
    shares = np.array(spectrum).clip(min=0)
    shares = shares[shares > 0] / shares.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def simplex(runs: dict[str, fedblade.Result]) -> None:
    """Cosines between the ten class vectors, trained and fixed."""
    left, right = axes("left: trained by FedAvg", "right: simplex classifier of FedETF")
    weight = next(v for k, v in runs["FedAvg"].model.module().state_dict().items() if v.shape == (10, 128))
    for axis, vectors in ((left, weight.double().T), (right, heads.simplex_etf(128, 10, dtype=torch.float64))):
        units = vectors / vectors.norm(dim=0)
        cosines = (units.T @ units).numpy()
        axis.imshow(cosines, cmap="coolwarm", vmin=-1, vmax=1)
        axis.set(xlabel="digit", ylabel="digit", xticks=range(10), yticks=range(10))
        other = cosines[~np.eye(10, dtype=bool)]
        print(f"cosines between different class vectors: {other.min():.2f} to {other.max():.2f}")
    save("simplex-classifier")


def one_computation() -> None:
    """The steps of a cohort: a line for each client, a column for each step that is computed at once."""
    with tempfile.TemporaryDirectory() as folder:
        counts = table(Path(folder)).sum(1)
        cohort = fedblade.run("quickstart", rounds=1, seed=SEED).history[0]["clients"]
    steps = sorted((int(3 * np.ceil(counts[client] / 32)) for client in cohort), reverse=True)
    (only,) = axes("steps of a round: one line is one client")
    for line, number in enumerate(steps):
        only.barh([line] * number, [0.8] * number, left=np.arange(number) + 0.1, height=0.7, color=BLUE)
    only.axvspan(2, 3, color=RED, alpha=0.25, linewidth=0)
    only.set(xlabel="step", ylabel="client of the cohort", yticks=[], xlim=(0, max(steps)))
    only.invert_yaxis()
    save("one-computation")
    print(f"steps of the clients of round 1: {steps}; {sum(steps)} alone, {max(steps)} side by side")


def reproducible(whole: fedblade.Result) -> None:
    """One seed in one go, the same seed stopped and resumed, and another seed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        fedblade.run("quickstart", method="fedavg", seed=SEED, out=out, callbacks=[lambda row: row["round"] == 15])
        resumed = fedblade.run(out=out, resume=True, rounds=41)
    other = fedblade.run("quickstart", method="fedavg", seed=SEED + 1)
    (only,) = axes("test accuracy")
    only.plot(*curve(other), color=GREY, label=f"seed {SEED + 1}")
    only.plot(*curve(whole), color=RED, label=f"seed {SEED}, in one go")
    only.plot(*curve(resumed), ".", color=BLUE, label=f"seed {SEED}, stopped after round 15 and resumed")
    only.axvline(15, color=GREY, linewidth=0.8, linestyle=":")
    only.set(xlabel="round", ylabel="test accuracy in %", ylim=(0, 100))
    only.legend(loc="lower right")
    save("reproducible")
    same = curve(whole)[1] == curve(resumed)[1][: len(whole.history)]
    print(f"the resumed run has the same accuracies: {same}")


def table(folder: Path) -> np.ndarray:
    """Samples per client and class of the split with this seed."""
    fedblade.run("quickstart", method="fedavg", rounds=1, seed=SEED, out=folder / "run")
    return np.array(json.loads((folder / "run" / "partition.json").read_text())["counts"])


def curve(result: fedblade.Result) -> tuple[list[int], list[float]]:
    """Rounds and test accuracies."""
    return [row["round"] for row in result.history], [row["test_accuracy"] for row in result.history]


def axes(*titles: str) -> list[Axes]:
    """A new picture with one part for each title."""
    size = (7.2, 2.9)
    _, parts = plt.subplots(1, len(titles), figsize=size, squeeze=False, layout="constrained")
    for part, title in zip(parts[0], titles, strict=True):
        part.set_title(title.partition(": ")[2] if len(titles) > 1 else title, fontsize=10, color=GREY)
    return list(parts[0])


def save(name: str) -> None:
    """Write the picture and close it."""
    plt.savefig(FOLDER / f"explain-{name}.svg", metadata={"Date": None, "Creator": None})
    plt.close()


if __name__ == "__main__":
    main()
