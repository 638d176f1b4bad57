# %% [markdown]
# # Ten minutes
#
# **Goal.** You train one model with twenty clients that never show their data, see what goes wrong when clients hold
# different labels, and compare three methods. You need nothing but fedblade and its extra `figures`: the handwritten
# digits come with the package.
#
# **Words.** A *client* holds data of its own. In each *round* the server sends the model to some clients (the
# *cohort*), they train, and the server combines what they send. *Label skew* means that clients hold different classes.

# %%
import matplotlib.pyplot as plt
import numpy as np

import fedblade
from fedblade.data.digits import digits

# %% parameters
ROUNDS = 30

# %% [markdown]
# ## 1. One run
#
# `quickstart` is a preset: digits, a small CNN, 20 clients of which 10 take part in a round, and a strong label skew.
# `fedavg` is the plain method: average the models of the cohort.

# %%
fedavg = fedblade.run("quickstart", method="fedavg", rounds=ROUNDS, seed=1, progress=False)
print(f"accuracy after the last round: {fedavg.summary['final_accuracy']:.1f} %")
print(f"mean of the last ten rounds:   {fedavg.summary['last10_accuracy']:.1f} %")

# %% [markdown]
# ## 2. Who holds what
#
# Each column below is a client, each row a digit; dark means many samples. Nobody has all digits: this is the skew.

# %%
split = fedavg.model.read_record().partition
fig, axes = plt.subplots(figsize=(6, 3))
axes.imshow(np.array(split.counts).T, cmap="Greys", aspect="auto")
axes.set(xlabel="client", ylabel="digit", title="samples per client and digit", yticks=range(10))
plt.show()
print(fedavg.model.read_record().hardness.sentence())

# %% [markdown]
# ## 3. What the skew does
#
# The accuracy of FedAvg jumps from round to round. A cohort pulls the model towards the digits that it holds, and the
# next cohort pulls it elsewhere.

# %%
axes = fedavg.plot()
axes.figure.set_size_inches(6, 3)
plt.show()

# %% [markdown]
# ## 4. Three methods side by side
#
# FedETF and FedBlade fix the classifier: the vectors of the classes have equal angles from the beginning, and no client
# can turn them. The same seed gives the same clients, cohorts, batches and first weights to every method, so the curves
# differ by the method alone.

# %%
comparison = fedblade.compare(
    "quickstart",
    methods=["fedavg", "fedetf", "fedblade"],
    seeds=[1, 2],
    rounds=ROUNDS,
    listener=fedblade.api.RunListener(),
)
axes = comparison.plot()
axes.figure.set_size_inches(6, 3.4)
plt.show()
for result in comparison.results:
    summary = result.summary
    accuracy = f"{summary['last10_accuracy']:5.1f} % in the last ten rounds"
    print(f"{summary['method']:<9} seed {summary['seed']}: {accuracy}")

# %% [markdown]
# **What one sees.** The bands reach from the lowest seed to the highest. The methods with a fixed classifier rise
# earlier, and FedETF jumps least. FedBlade falls back for two rounds with one of the seeds and recovers. Two seeds are
# enough for a first look, and too few for a claim.
#
# ## 5. Use the model
#
# `predict` takes inputs as the data set holds them.

# %%
test = digits().test
labels = comparison.results[-1].model.predict(test.inputs[:8])
fig, row = plt.subplots(1, 8, figsize=(7, 1.3))
for place, pixels, label in zip(row, test.inputs, labels, strict=False):
    place.imshow(pixels[0], cmap="Greys")
    place.set(title=str(int(label)), xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## Where to go on
#
# - `comparison.report()` writes a page that asks why a method wins.
# - `comparison.results[-1].export("digits.onnx")` writes the model for programs without fedblade.
# - The next notebook trains on your own arrays with your own model.
