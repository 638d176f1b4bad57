"""What method code may look at: one client and one batch (`StepView`), or one client after training (`EndView`).

Neither reaches a loader, a device, a loop or another client, so every engine can provide them in its own way.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.streams import Streams
from fedblade.core.tree import State, Tree

Tap = Literal["none", "plain", "relu"]
"""Whether the outputs of the body's stages are wanted, and whether they pass a ReLU before they are averaged."""


@dataclass(frozen=True)
class HeadOutput:
    """What a head makes of features.

    `logits [batch, classes]` rank the classes; `projected [batch, space]` is the vector compared with the class
    vectors before any normalisation (the projector's output, or the features where there is no projector).
    """

    logits: Tensor
    projected: Tensor


@dataclass(frozen=True)
class HeadTensors:
    """Tensors a head starts with: `params` are trained and averaged, `fixed` are sent once and never change."""

    params: Tree
    fixed: Tree


class Head(ABC):
    """Features to logits. A head is a frozen value; its tensors are passed in.

    Parameter names start with their group: `neck.`, `projector.`, `head.`, `scale` or `personal_head.`.
    """

    @abstractmethod
    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """Initial tensors in float32, drawn from the head's own streams."""

    def adopt(self, weight: Tensor, bias: Tensor | None) -> HeadTensors | None:  # noqa: ARG002 - affine heads use it
        """Initial tensors with which the logits are W z + b, `weight [classes, dim]`; None if the head cannot do so."""
        return None

    @abstractmethod
    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:
        """Logits and projected features of `features [batch, dim]`."""

    def project(self, params: Tree, features: Tensor) -> Tensor:  # noqa: ARG002 - heads with a projector use it
        """Map `features [..., dim]` to the space of the class vectors."""
        return features

    def raw_logits(self, params: Tree, fixed: Tree, output: HeadOutput) -> Tensor:  # noqa: ARG002 - cosine heads use it
        """Logits before any normalisation or scale, [batch, classes]: what logit distillation compares."""
        return output.logits

    def constrain(self, params: Tree) -> dict[str, Tensor]:  # noqa: ARG002 - heads with bounds use it
        """Bring `params` back into their bounds in place, after a step; returns counters."""
        return {}


@dataclass(frozen=True)
class Teacher:
    """A frozen model that is fed the student's batch: the received one, or the one in the client state named `of`.

    `norm` "eval" normalises with its running statistics, "batch" with those of the batch, as the student does; neither
    changes its buffers.
    """

    of: str = "anchor"
    norm: Literal["eval", "batch"] = "eval"

    def __post_init__(self) -> None:
        if self.norm not in ("eval", "batch"):
            raise Misconfigured(f"teacher_norm = {self.norm!r} is not allowed; expected 'eval' or 'batch'.")


@dataclass(frozen=True)
class TeacherOutput:
    """What a teacher makes of the batch, without a graph: features, the head's output and its raw logits."""

    features: Tensor
    output: HeadOutput
    raw_logits: Tensor


@dataclass(frozen=True)
class StepView:
    """One client and one batch, as a loss term sees it.

    `anchor` is the model received this round, `counts [classes]` the client's training samples per class, `server`
    the state the server sent, `client` the client's own. `mask [batch]` is 1 for real samples; None means all are.
    `teachers` holds what the terms' teachers say of the batch, `stages` the outputs of the body's stages, averaged over
    positions, if a term taps them, `noise [batch, n]` the uniform draws the method asked for.
    """

    params: Tree
    anchor: Tree
    fixed: Tree
    head: Head
    features: Tensor
    output: HeadOutput
    labels: Tensor
    counts: Tensor
    server: State
    client: State
    round: int
    mask: Tensor | None = None
    teachers: Mapping[Teacher, TeacherOutput] = field(default_factory=dict)
    stages: tuple[Tensor, ...] = ()
    noise: Tensor | None = None

    @property
    def logits(self) -> Tensor:
        """The head's logits [batch, classes]."""
        return self.output.logits

    @property
    def raw_logits(self) -> Tensor:
        """The head's logits before any normalisation or scale [batch, classes]."""
        return self.head.raw_logits(self.params, self.fixed, self.output)


@dataclass(frozen=True)
class EndView:
    """One client after its local work, as a sum sees it.

    `passes` holds what the declared passes over the client's data added up. `weight` is the client's aggregation
    weight (0 if it made no step), `num_steps` counts the steps of the received model, `effective_steps` corrects them
    for momentum, `population` is the number of all clients, `shared` the names of the parameters and statistics that
    travel up: those that are neither personal nor left untrained. Numbers that differ between clients are tensors where
    an engine looks at many clients at once: compute with them, do not branch on them. `erased` is the class that the
    client holds and did without in this round, -1 if there is none.
    """

    params: Tree
    buffers: Tree
    anchor: Tree
    fixed: Tree
    head: Head
    counts: Tensor
    num_samples: float | Tensor
    num_steps: float | Tensor
    effective_steps: float | Tensor
    lr: float
    weight: float | Tensor
    population: int
    shared: frozenset[str]
    round: int
    server: State
    client: State
    passes: Mapping[str, Tree]
    erased: float | Tensor = -1
