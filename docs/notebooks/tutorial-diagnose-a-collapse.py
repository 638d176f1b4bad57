# %% [markdown]
# # Diagnose a collapse
#
# **Goal.** A federated model is worse than it should be. You find out whether its *features* have collapsed, that is,
# whether they use few of their dimensions, and you see what two remedies change.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import fedblade
from fedblade import diagnostics
from fedblade.data.digits import digits

# %% parameters
ROUNDS = 25

# %% [markdown]
# ## 1. A mild split and a hard one
#
# We train the same model by FedAvg twice. `alpha` sets the skew of the Dirichlet split: 10 is nearly even, 0.05 leaves
# most clients with one or two digits.

# %%
METRICS = ["accuracy", "erank_feature", "spectrum", "alignment"]


def train(method: str, alpha: float, **settings: float) -> fedblade.Result:
    """A run with diagnostics in every round."""
    return fedblade.run(
        "quickstart", method=method, alpha=alpha, rounds=ROUNDS, seed=2, metrics=METRICS, diagnostics_every=1,
        progress=False, **settings,
    )  # fmt: skip


runs = {"fedavg, mild split": train("fedavg", 10.0), "fedavg, hard split": train("fedavg", 0.05)}
for name, run in runs.items():
    print(f"{name}: {run.summary['last10_accuracy']:.1f} % in the last ten rounds")

# %% [markdown]
# ## 2. How many directions are in use
#
# The *effective rank* counts the directions in which features vary, by strength: 1 if everything lies on a line, 128 if
# all dimensions of this model are used alike.


# %%
def draw(number: str, label: str) -> None:
    """A number of the history over rounds."""
    _, axes = plt.subplots(figsize=(6, 3))
    for name, run in runs.items():
        records = [record for record in run.history if number in record]
        axes.plot([record["round"] for record in records], [record[number] for record in records], label=name)
    axes.set(xlabel="round", ylabel=label)
    axes.legend(fontsize=8)
    plt.show()


draw("erank_feature", "effective rank")

# %% [markdown]
# The spectrum shows the same in detail: the variance along each direction, largest first. A curve that falls early is a
# collapse.

# %%
fig, axes = plt.subplots(figsize=(6, 3))
for name, run in runs.items():
    spectrum = np.array(run.diagnostics[-1]["spectrum"])
    axes.semilogy(np.maximum(spectrum / spectrum[0], 1e-8), label=name)
axes.set(xlabel="direction", ylabel="variance, share of the largest")
axes.legend(fontsize=8)
plt.show()

# %% [markdown]
# **What one sees.** The hard split costs FedAvg a quarter of its accuracy, but only about one direction. Both models
# use few of their 128 dimensions. So the features have collapsed, and yet the skew is not the main cause of it.
#
# ## 3. Two remedies test the diagnosis
#
# FedDecorr adds a loss that keeps features uncorrelated: it treats the features. FedETF fixes the classifier, so that
# clients cannot turn the vectors of classes they do not have: it treats the classifier. Each of them tells which of the
# two was ill.

# %%
runs["feddecorr, hard split"] = train("feddecorr", 0.05)
runs["fedetf, hard split"] = train("fedetf", 0.05)
draw("erank_feature", "effective rank")
draw("test_accuracy", "test accuracy, %")

# %% [markdown]
# ## 4. Read the numbers together
#
# The table has accuracy, rank, and the alignment of classes that a client *lacks*: how well features still point at the
# vectors of classes that the client has no sample of, after local training. 1 means that they point there exactly.

# %%
print(f"{'run':<24} accuracy  effective rank  alignment of lacking classes")
for name, run in runs.items():
    last = [record for record in run.history if "erank_feature" in record][-1]
    lacking = last.get("alignment_unobserved")
    shown = "-" if lacking is None else f"{lacking:.2f}"
    print(f"{name:<24} {run.summary['last10_accuracy']:7.1f} % {last['erank_feature']:14.1f}  {shown:>27}")

# %% [markdown]
# **What it means.** FedDecorr, with the weight that its paper chose for larger models, gives this small network neither
# rank nor accuracy. FedETF wins back about half of the loss, and with it features point better at the classes that a
# client lacks. This speaks for a biased classifier as the first cause on this split. It is one seed: before you tell
# others, repeat it with five.
#
# A rank alone would have led to the wrong remedy. Look at several numbers, and let a remedy confirm the cause.

# %% [markdown]
# ## 5. The same on features of your own
#
# The diagnostics are functions. They work on the features of any model.

# %%
test = digits().test
for name, run in runs.items():
    with torch.no_grad():
        features = run.model.features(torch.from_numpy(test.inputs))
    print(f"{name:<24} effective rank {float(diagnostics.effective_rank(features)):5.1f} of {features.shape[1]}")

# %% [markdown]
# ## Where to go on
#
# `fedblade report RUN_DIR` asks these questions for every run, with the pictures. `fedblade list metrics` has the other
# diagnostics: drift, neural collapse, consistency of prototypes.
