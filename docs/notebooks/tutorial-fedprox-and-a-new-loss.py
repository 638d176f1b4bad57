# %% [markdown]
# # Write FedProx and a new loss
#
# **Goal.** You write a published method (FedProx) and a loss of your own in a few lines each, check both, and compare
# them. You write no loop, no client and no server: a method says what one client adds to its loss on one batch.

# %%
from dataclasses import dataclass, replace
from typing import ClassVar

import matplotlib.pyplot as plt
import torch

import fedblade
from fedblade.api import Method, RunListener, StepView, Term, TermValue, fedavg, register_method
from fedblade.losses import cross_entropy

# %% parameters
ROUNDS = 25

# %% [markdown]
# ## 1. FedProx: a term
#
# FedProx (Li et al., 2020) keeps a client near the model it received, the *anchor* $w_0$, by the term
# $\frac{\mu}{2}\lVert w - w_0\rVert^2$. A *term* gets a view of one step: parameters, anchor, features, logits, labels.


# %%
@dataclass(frozen=True, kw_only=True)
class NearTheAnchor(Term):
    """The proximal term: mu/2 times the squared distance of the weights from the anchor's."""

    name: ClassVar[str] = "near"
    mu: float

    def __call__(self, view: StepView) -> TermValue:
        """The sum over all weights that are averaged."""
        squares = [(view.params[name] - view.anchor[name]).square().sum() for name in view.params]
        return TermValue(0.5 * self.mu * torch.stack(squares).sum())


# %% [markdown]
# A *method* is FedAvg with one more term. The argument with a default becomes a setting, `method.mu`.


# %%
@register_method()
def my_prox(mu: float = 0.1) -> Method:
    """Keep local weights near the global ones."""
    return replace(fedavg(), losses=(*fedavg().losses, NearTheAnchor(mu=mu)))


# %% [markdown]
# ## 2. Check it against what is known
#
# The library has FedProx. The two must agree, and with `mu=0` both must be FedAvg. Such checks find most mistakes.


# %%
def accuracies(method: str, **settings: float) -> list[float]:
    """The test accuracy of each round."""
    result = fedblade.run(
        "quickstart", method=method, rounds=5, seed=1, metrics=["accuracy"], progress=False, **settings
    )
    return [round(record["test_accuracy"], 2) for record in result.history]


print("my_prox, mu=0.1 ", accuracies("my_prox", mu=0.1))
print("fedprox, mu=0.1 ", accuracies("fedprox", mu=0.1))
print("my_prox, mu=0   ", accuracies("my_prox", mu=0.0))
print("fedavg          ", accuracies("fedavg"))

# %% [markdown]
# ## 3. A loss of your own
#
# A client with two digits learns first that all other digits do not occur. This new loss lowers that lesson: it adds
# the logarithm of the client's class counts to the logits while training, so that frequent classes need a smaller
# logit. `view.counts` has the number of the client's samples of each class. It replaces the cross-entropy, so it says
# `supervised = True`. `view.mask` marks padded rows, which must not count.


# %%
@dataclass(frozen=True, kw_only=True)
class ByCounts(Term):
    """Cross-entropy of logits + strength * log(1 + class counts)."""

    name: ClassVar[str] = "supervised"
    supervised: ClassVar[bool] = True
    strength: float

    def __call__(self, view: StepView) -> TermValue:
        """The mean over the batch."""
        shift = self.strength * torch.log1p(view.counts).to(view.logits)
        return TermValue(cross_entropy(view.logits + shift, view.labels, mask=view.mask))


@register_method()
def by_counts(strength: float = 1.0) -> Method:
    """Do not learn which classes a client lacks."""
    return replace(fedavg(), losses=(ByCounts(strength=strength),))


# %% [markdown]
# ## 4. Compare
#
# Your methods have names like all others, and regularisers can be added to them: `by_counts+feddecorr` works at once.

# %%
comparison = fedblade.compare(
    "quickstart", methods=["fedavg", "my_prox", "by_counts"], seeds=[1, 2], rounds=ROUNDS, listener=RunListener(),
    metrics=["accuracy"],
)  # fmt: skip
axes = comparison.plot()
axes.figure.set_size_inches(6, 3.4)
plt.show()
for result in comparison.results:
    summary = result.summary
    print(f"{summary['method']:<10} seed {summary['seed']}: {summary['last10_accuracy']:5.1f} % in the last ten rounds")

# %% [markdown]
# **What it means.** The same seed gives the same clients and cohorts to each method, so compare seed by seed. A new
# loss that wins with two seeds is an idea, not a result: use five seeds and a split that you did not look at while
# tuning.
#
# ## Where to go on
#
# In a file of your own a method is used by reference, `method=mine.py:by_counts`, from the command line too. Methods
# can also send further sums, keep state on clients, and have a server step of their own: `examples/new_method.py`.
