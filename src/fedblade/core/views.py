"""What method code may see: one client and one batch (`StepView`), or one client after training (`EndView`).

Neither gives access to a loader, a device, a loop or another client, so that every engine can provide them.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from fedblade.core.errors import Misconfigured
from fedblade.core.streams import Streams
from fedblade.core.tree import State, Tree, tree_select

Tap = Literal["none", "plain", "relu"]
"""Whether a term reads the outputs of the body's stages, and whether a ReLU comes before they are averaged."""


@dataclass(frozen=True)
class HeadOutput:
    """The output of a head for features.

    `logits [batch, classes]` rank the classes; `projected [batch, space]` is the vector compared with the class
    vectors before any normalisation (the projector's output, or the features where there is no projector).
    """

    logits: Tensor
    projected: Tensor


@dataclass(frozen=True)
class HeadTensors:
    """Initial tensors of a head: `params` are trained and averaged, `fixed` are sent once and never change."""

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
        """Initial tensors with which the logits are W z + b, `weight [classes, dim]`; None if there are none."""
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

    def layers(self, params: Tree, fixed: Tree) -> Sequence[nn.Module] | None:  # noqa: ARG002 - heads of the library do
        """The logits as layers of `torch.nn` with copies of the tensors; None if the head does not say them."""
        return None

    def free(self, fixed: Tree, names: Collection[str]) -> Tree:
        """The fixed tensors of these names, in the form in which a phase trains them."""
        return tree_select(fixed, names)

    def constrain(self, params: Tree) -> dict[str, Tensor]:  # noqa: ARG002 - heads with bounds use it
        """Move `params` into their bounds in place, after a step; returns counters."""
        return {}


@dataclass(frozen=True)
class Teacher:
    """A frozen model that sees the student's batch: the received model, or the model in the client state named `of`.

    `norm` "eval" normalises with the teacher's running statistics, "batch" with the statistics of the batch, as the
    student does. The teacher's buffers do not change.
    """

    of: str = "anchor"
    norm: Literal["eval", "batch"] = "eval"

    def __post_init__(self) -> None:
        if self.norm not in ("eval", "batch"):
            raise Misconfigured(f"teacher_norm = {self.norm!r} is not allowed; expected 'eval' or 'batch'.")


@dataclass(frozen=True)
class TeacherOutput:
    """A teacher's output for the batch, without a graph: features, the head's output and its raw logits."""

    features: Tensor
    output: HeadOutput
    raw_logits: Tensor


@dataclass(frozen=True)
class StepView:
    """One client and one batch, as a loss term sees it.

    `anchor` is the model received this round, `counts [classes]` the client's training samples per class, `server` the
    state that the server sent, `client` the client's state. `mask [batch]` is 1 for real samples; None means that all
    are. `teachers` has the outputs of the terms' teachers, `stages` the outputs of the body's stages, averaged over
    positions, if a term taps them, and `noise [batch, n]` the uniform draws that the method asked for.
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

    `passes` has the totals of the declared passes over the client's data. `weight` is the client's aggregation weight
    (0 if it made no step), `num_steps` counts the steps of the received model, `effective_steps` corrects them for
    momentum, `population` is the number of all clients. `shared` has the names of the parameters and statistics that
    clients send: those that are neither personal nor untrained. Numbers that differ between clients are tensors if an
    engine computes many clients at once: compute with them, do not branch on them. `erased` is the class whose samples
    the client has and did not use in this round, -1 if there is none.
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
