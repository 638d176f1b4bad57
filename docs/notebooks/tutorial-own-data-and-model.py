# %% [markdown]
# # Your own data and model
#
# **Goal.** You train on NumPy arrays with a module of your own, choose how the data are divided, read what the library
# assumed, and take the trained model along as a plain PyTorch module.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import fedblade

# %% parameters
ROUNDS = 25

# %% [markdown]
# ## 1. Four arrays
#
# Inputs and labels for training, inputs and labels for testing: that is all. Here three spirals in the plane stand for
# your data. The labels are 10, 20 and 30, because real labels are seldom 0, 1, 2.


# %%
def spirals(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on three arms of a spiral, and the arm of each."""
    rng = np.random.default_rng(seed)
    arm, radius = rng.integers(0, 3, count), rng.uniform(0.1, 1.0, count)
    angle = 3.5 * radius + arm * 2 * np.pi / 3 + rng.normal(0, 0.12, count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype("float32"), 10 * (arm + 1)


x, y = spirals(1500, seed=0)
x_test, y_test = spirals(500, seed=1)
fig, axes = plt.subplots(figsize=(3.4, 3.4))
axes.scatter(*x_test.T, c=y_test, s=6)
axes.set(title="test data", aspect="equal")
plt.show()

# %% [markdown]
# ## 2. A module
#
# Any `nn.Module` works. The last linear layer with one output for each class is cut off: methods bring classifiers of
# their own and need the features before that layer.


# %%
def net() -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))


# %% [markdown]
# ## 3. Train
#
# Ten clients, each with two of the three classes at most. The line that is printed first says what was found in
# the module and what was assumed about the data. Read it once for each new data set.

# %%
SETTINGS = {
    "dataset": (x, y, x_test, y_test), "num_clients": 10, "clients_per_round": 5, "partition": "pathological",
    "classes_per_client": 2, "rounds": ROUNDS, "lr": 0.1, "local.epochs": 2, "seed": 1,
}  # fmt: skip
torch.manual_seed(0)
module = net()
results = {name: fedblade.run(method=name, model=module, progress=False, **SETTINGS) for name in ("fedavg", "fedetf")}
for name, result in results.items():
    print(f"{name}: {result.summary['last10_accuracy']:.1f} % in the last ten rounds")

# %% [markdown]
# ## 4. Look at the result
#
# The history has one record for each round. What the model has learned is best seen as a map: the colour is the label
# that the model gives to a point.

# %%
grid = np.stack(np.meshgrid(np.linspace(-1.1, 1.1, 120), np.linspace(-1.1, 1.1, 120)), axis=-1).astype("float32")
fig, row = plt.subplots(1, 2, figsize=(7, 3.4))
for axes, (name, result) in zip(row, results.items(), strict=True):
    labels = result.model.predict(grid.reshape(-1, 2)).reshape(120, 120)
    axes.imshow(labels, extent=(-1.1, 1.1, -1.1, 1.1), origin="lower", alpha=0.4)
    axes.scatter(*x_test.T, c=y_test, s=4)
    axes.set(title=f"{name}: {result.summary['final_accuracy']:.0f} %")
plt.show()

# %% [markdown]
# `predict` gives your labels (10, 20, 30) and refuses inputs of another shape or scale. `probabilities` says how sure
# the model is.

# %%
point = x_test[:3]
print(results["fedetf"].model.predict(point).tolist(), "true labels:", y_test[:3].tolist())
print(results["fedetf"].model.probabilities(point).numpy().round(2))

# %% [markdown]
# ## 5. Take the model along
#
# `module()` gives a plain PyTorch module with the names of your own layers and the trained head in the place of the
# last one. It takes normalised inputs. `export` writes files for programs that do not have fedblade.

# %%
plain = results["fedavg"].model.module()
print(plain)
inputs = results["fedavg"].model.normalise(torch.from_numpy(x_test))
with torch.no_grad():
    hits = plain(inputs).argmax(1).numpy() == (y_test // 10 - 1)
print(f"the plain module alone: {100 * hits.mean():.1f} %")

# %% [markdown]
# ## Where to go on
#
# Pictures in folders, tables and torch datasets with random transforms work as well; the pages on your own data and
# your own models have the rules.
