"""Everything that a person who extends this library imports; docs/reference-stability.md says what that promises.

- A method: `Method`, `Phase`, `Sgd`, `Lookahead`, `Exchange`, `PersonalModel`; `fedavg` is the one to start from.
- A loss: `Term`, `FeatureTerm`, `GradientTerm`, `TermValue`, `Teacher`, `TeacherOutput`, and what it sees: `StepView`.
- A head: `Head`, `HeadOutput`, `HeadTensors`.
- What clients send: `Sum`, `Sums`, `DataPass`, `EndView`, `MODEL_SUMS`.
- The server: `ServerState`, `InitView`, `average`, `initial_zeros`, `initial_model`.
- Trees of tensors: `Tree`, `State`, `tree_map`, `tree_zeros`, `tree_clone`, `tree_select`, `tree_dot`, `tree_norm`.
- Random numbers: `Streams`, `Stream`.
- A metric: `Metric`, `Field`.
- A partition: `Partitioner`, `Request`, `Split`. Who takes part in a round: a function of `ParticipationView`.
- A data set: `Dataset`, `as_dataset`. A model: `Backbone`, `as_backbone`.
- A listener of a run: `RunListener`, `RunOverview`, `RoundRecord`.
- Names for your parts: `register_method`, `register_regulariser`, `register_loss`, `register_head`, `register_model`,
  `register_dataset`, `register_partition`, `register_participation`, `register_metric`. A part in a file needs no name:
  `file.py:function`.
- Errors: `FedbladeError`, `Misconfigured`, `Unsupported`, `RunFailed`.
- The packages `losses`, `heads`, `partitions`, `models`, `data` and `diagnostics`.
"""

from fedblade import data, diagnostics, heads, losses, models, partitions
from fedblade.core import registry
from fedblade.core.errors import FedbladeError, Misconfigured, RunFailed, Unsupported
from fedblade.core.fields import Field
from fedblade.core.listener import RoundRecord, RunListener, RunOverview
from fedblade.core.method import Exchange, InitView, Method
from fedblade.core.method import Own as PersonalModel
from fedblade.core.method import model as initial_model
from fedblade.core.method import zeros as initial_zeros
from fedblade.core.metric import Metric
from fedblade.core.phase import Lookahead, Phase, Sgd
from fedblade.core.state import ServerState
from fedblade.core.streams import Stream, Streams
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.terms import FeatureTerm, GradientTerm, Term, TermValue
from fedblade.core.tree import State, Tree, tree_clone, tree_dot, tree_map, tree_norm, tree_select, tree_zeros
from fedblade.core.views import EndView, Head, HeadOutput, HeadTensors, StepView, Teacher, TeacherOutput
from fedblade.data import Dataset, as_dataset
from fedblade.methods.fedavg import fedavg
from fedblade.models import Backbone, as_backbone
from fedblade.participations import ParticipationView
from fedblade.partitions import Partitioner, Request, Split
from fedblade.payloads import MODEL as MODEL_SUMS
from fedblade.server import average

register_method = registry.methods.register
"""Decorator that gives a function that returns a `Method` a name."""
register_regulariser = registry.regularisers.register
"""Decorator that gives a function that returns a function from `Method` to `Method`, for `method+name` a name."""
register_loss = registry.losses.register
"""Decorator that gives a term a name."""
register_head = registry.heads.register
"""Decorator that gives a head a name."""
register_model = registry.models.register
"""Decorator that gives a function of the shape of an input that returns a module a name."""
register_dataset = registry.datasets.register
"""Decorator that gives a function that returns a `Dataset` a name."""
register_partition = registry.partitions.register
"""Decorator that gives a `Partitioner` a name."""
register_participation = registry.participations.register
"""Decorator that gives a function of a `ParticipationView` that returns the cohort a name."""
register_metric = registry.metrics.register
"""Decorator that gives a function that returns a `Metric` a name."""

__all__ = [
    "MODEL_SUMS",
    "Backbone",
    "DataPass",
    "Dataset",
    "EndView",
    "Exchange",
    "FeatureTerm",
    "FedbladeError",
    "Field",
    "GradientTerm",
    "Head",
    "HeadOutput",
    "HeadTensors",
    "InitView",
    "Lookahead",
    "Method",
    "Metric",
    "Misconfigured",
    "ParticipationView",
    "Partitioner",
    "PersonalModel",
    "Phase",
    "Request",
    "RoundRecord",
    "RunFailed",
    "RunListener",
    "RunOverview",
    "ServerState",
    "Sgd",
    "Split",
    "State",
    "StepView",
    "Stream",
    "Streams",
    "Sum",
    "Sums",
    "Teacher",
    "TeacherOutput",
    "Term",
    "TermValue",
    "Tree",
    "Unsupported",
    "as_backbone",
    "as_dataset",
    "average",
    "data",
    "diagnostics",
    "fedavg",
    "heads",
    "initial_model",
    "initial_zeros",
    "losses",
    "models",
    "partitions",
    "register_dataset",
    "register_head",
    "register_loss",
    "register_method",
    "register_metric",
    "register_model",
    "register_participation",
    "register_partition",
    "register_regulariser",
    "tree_clone",
    "tree_dot",
    "tree_map",
    "tree_norm",
    "tree_select",
    "tree_zeros",
]
