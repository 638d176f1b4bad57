"""The fixed sections of a run's configuration, typed and frozen."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fedblade.core.neck import Neck

Positive = Annotated[int, Field(gt=0)]


def _names(given: object) -> object:
    """Names in one string, as the command line gives them, as a list."""
    return [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else given


class Section(BaseModel):
    """A table of the configuration: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class General(Section):
    """Keys outside any table. `engine` "auto" is the stacked one wherever it applies, else the sequential one.

    With `tf32` float32 products may round to TF32 on a GPU; `autocast` is the type of the body's forward pass.
    `trackers` follow the run and change nothing about it, so they may differ when it goes on.
    """

    id: str = "custom"
    seed: Annotated[int, Field(ge=0)] = 0
    engine: str = "auto"
    device: str = "auto"
    dtype: Literal["float32", "float64"] = "float32"
    autocast: Literal["none", "bf16"] = "none"
    tf32: bool = False
    trackers: Annotated[list[Literal["tensorboard", "mlflow", "wandb"]], BeforeValidator(_names)] = []


class DatasetSettings(Section):
    """What is done with any data set."""

    augment: str = "none"
    test_split: Literal["global", "matched", "matched_counts", "proportional", "holdout"] = "global"


class PartitionSettings(Section):
    """What is done with any partition: `seed` "auto" draws the split from the run's seed, a number fixes it for all."""

    seed: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"


class ModelSettings(Section):
    """What is done with any model: its statistics, and a linear layer of `neck` features after it.

    `output` says what a module of the user's own returns; "auto" finds out (`fedblade.models.as_backbone`). `init`
    "given" starts from the weights that such a module has: those that were passed from Python, or those that the
    user's function makes when it is called for the seed. "seed" draws them anew. "auto" is "given" for a module of the
    user's own. The library's models are always drawn.

    The neck gets a hidden layer with ReLU, as wide as `neck_hidden` times the model's features, and ends with a
    BatchNorm if `neck_norm` says so.
    """

    output: Literal["auto", "features", "logits"] = "auto"
    init: Literal["auto", "seed", "given"] = "auto"
    norm_stats: Literal["running", "batch"] = "running"
    neck: Positive | Literal["none"] = "none"
    neck_hidden: Annotated[float, Field(gt=0)] | Literal["none"] = "none"
    neck_norm: Literal["none", "batch"] = "none"

    @property
    def neck_layers(self) -> Neck | None:
        """The neck, or None without one."""
        if self.neck == "none":
            return None
        return Neck(self.neck, None if self.neck_hidden == "none" else self.neck_hidden, self.neck_norm)


class Nothing(Section):
    """No settings besides the part's own knobs."""


class Federation(Section):
    """Population, cohorts and rounds."""

    num_clients: Positive = 20
    clients_per_round: Positive = 10
    rounds: Positive = 40
    weighting: Literal["samples", "uniform", "batches"] = "samples"


class Local(Section):
    """A client's work in a round: `epochs`, or `steps` of them all the same however many samples a client has.

    With `steps` a client begins one epoch after another, each in an order of its own, and stops after so many steps.
    Phases of a method that have epochs of their own keep them.
    """

    epochs: Positive = 1
    steps: Positive | Literal["none"] = "none"
    batch_size: Positive = 32
    last_batch: Literal["keep", "drop", "wrap"] = "keep"


class Optimizer(Section):
    """Local SGD and its rate over rounds. With `clip` "none" the method's own default holds, if it has one."""

    name: Literal["sgd"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["constant", "exp", "step"] = "constant"
    persist: bool = False
    clip: Annotated[float, Field(gt=0)] | Literal["none"] = "none"

    def rate(self, round_: int, rounds: int) -> float:
        """The rate of round `round_` (from 0): constant, ×0.99 per round, or ×0.1 at 1/2 and at 3/4 of the run."""
        match self.schedule:
            case "constant":
                return self.lr
            case "exp":
                return self.lr * 0.99**round_
            case "step":
                drops = int(2 * round_ >= rounds) + int(4 * round_ >= 3 * rounds)
                return self.lr * 0.1**drops


class Evaluation(Section):
    """When and what to measure, on which samples, and which number is the headline.

    Accuracy is measured `every` so many rounds, the other metrics in those of them that `diagnostics_every` divides,
    and all of them in the last. `on = "validation"` holds a tenth of every client's training data back and measures
    there, for tuning.
    """

    protocol: Literal["last10", "last5", "final", "domain", "pers_etf", "gapa", "ft"] = "last10"
    every: Positive = 1
    on: Literal["test", "validation"] = "test"
    metrics: list[str] = [
        "accuracy", "classes", "calibration", "spectrum", "erank_feature", "nc1", "nc2", "class_means", "drift",
    ]  # fmt: skip
    diagnostics_every: Positive = 1


class Checkpoint(Section):
    """How often the state is saved and how many states are kept."""

    every: Positive = 1
    keep: Positive = 2


class Distributed(Section):
    """How the processes of a run that torchrun starts work together (docs/scale.md); one process alone ignores it.

    `order` "any" adds up what ranks send as it is fastest: the last bits depend on the number of ranks. "fixed" adds
    client by client in ascending id, which is the very result of one process with engine=sequential.
    `store` "shared" keeps clients' states in the run's folder, which all ranks must see; "rank" keeps them with the
    rank that trains the client, in its own copy of that folder. Ranks wait `timeout_seconds` at most for each other.
    """

    order: Literal["any", "fixed"] = "any"
    store: Literal["shared", "rank"] = "shared"
    timeout_seconds: Annotated[float, Field(gt=0)] = 600.0


FIXED: dict[str, type[Section]] = {
    "federation": Federation,
    "local": Local,
    "optimizer": Optimizer,
    "evaluation": Evaluation,
    "checkpoint": Checkpoint,
    "distributed": Distributed,
}
"""Sections whose keys never change."""

NAMED: dict[str, type[Section]] = {
    "dataset": DatasetSettings,
    "partition": PartitionSettings,
    "model": ModelSettings,
    "method": Nothing,
}
"""Sections that choose a registered part by `name` and carry its knobs beside these settings."""

ORDER = (
    "dataset", "partition", "federation", "model", "local", "optimizer", "method", "evaluation", "checkpoint",
    "distributed",
)  # fmt: skip
