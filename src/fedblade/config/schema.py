"""The fixed sections of a run's configuration, typed and frozen."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fedblade.core.neck import Neck


def _names(value: object) -> object:
    """A string with names and commas, as on the command line, as a list of names."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


Positive = Annotated[int, Field(gt=0, lt=2**31)]
"""No count is larger, and torch and NumPy cannot compute with much larger ones."""
Names = BeforeValidator(_names)
"""For a list of names, which may also be written as a string with commas: `metrics=nc1,nc2`."""


class Section(BaseModel):
    """A table of the configuration: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class General(Section):
    """Keys outside any table. `engine` "auto" is the stacked engine if it can compute the run, else the sequential one.

    With `tf32`, float32 products on a GPU may round to TF32. `autocast` is the type of the body's forward pass.
    `trackers` follow the run and do not change its result, so they may change when the run is resumed.
    """

    id: str = "custom"
    seed: Annotated[int, Field(ge=0)] = 0
    engine: str = "auto"
    device: str = "auto"
    dtype: Literal["float32", "float64"] = "float32"
    autocast: Literal["none", "bf16"] = "none"
    tf32: bool = False
    trackers: Annotated[list[Literal["tensorboard", "mlflow", "wandb"]], Names] = []


class DatasetSettings(Section):
    """Settings for any data set: how training samples are augmented, and which test samples a client gets."""

    augment: str = "none"
    test_split: Literal["global", "matched", "matched_counts", "proportional", "holdout"] = "global"


class PartitionSettings(Section):
    """Settings for any partition. With `seed` "auto" the run's seed draws the split, a number fixes the split."""

    seed: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"


class ModelSettings(Section):
    """Settings for any model: normalisation statistics, and a neck, which is a linear layer to `neck` features.

    `output` is what a user's module returns; with "auto" the library finds out (`fedblade.models.as_backbone`). `init`
    is where the first weights come from. With "given" a user's module keeps its weights: those of the object that was
    passed, or those that the user's function gives for the seed. With "seed" they are drawn again. "auto" is "given"
    for a user's module. The library's models are always drawn.

    With `neck_hidden` the neck has a hidden layer with ReLU, as wide as `neck_hidden` times the model's features. With
    `neck_norm` "batch" it ends with a BatchNorm.
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
    """No settings besides the knobs of the part."""


class Federation(Section):
    """Population, cohorts and rounds.

    In a simulation, each client of a cohort stays silent with probability `dropout`: it trains nothing and sends
    nothing. At least one client answers. With probability `partial_work` a client does only a part of its local steps.
    `unseen` is the share of the clients that never train and are only evaluated.
    """

    num_clients: Positive = 20
    clients_per_round: Positive = 10
    rounds: Positive = 40
    weighting: Literal["samples", "uniform", "batches"] = "samples"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    partial_work: Annotated[float, Field(ge=0, le=1)] = 0.0
    unseen: Annotated[float, Field(ge=0, lt=1)] = 0.0


class Local(Section):
    """The work of a client in a round: so many `epochs`, or so many `steps`, however many samples the client has.

    With `steps`, a client starts one epoch after another, each in a new order, and stops after so many steps. If a
    phase of the method sets its epochs, they go before both.
    """

    epochs: Positive = 1
    steps: Positive | Literal["none"] = "none"
    batch_size: Positive = 32
    last_batch: Literal["keep", "drop", "wrap"] = "keep"


class Optimizer(Section):
    """Local SGD and its learning rate over rounds. With `clip` "none" the method's default is used, if it has one."""

    name: Literal["sgd"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["constant", "exp", "step"] = "constant"
    persist: bool = False
    clip: Annotated[float, Field(gt=0)] | Literal["none"] = "none"

    def rate(self, round_: int, rounds: int) -> float:
        """The rate of a round, counted from 0: constant, ×0.99 per round, or ×0.1 at 1/2 and at 3/4 of the run."""
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

    Accuracy is measured every `every` rounds. The other metrics are measured in those of these rounds that
    `diagnostics_every` divides. In the last round all are measured. `on = "validation"` holds out a tenth of every
    client's training data and measures on it, for tuning.
    """

    protocol: Literal["last10", "last5", "final", "domain", "pers_etf", "gapa", "ft"] = "last10"
    every: Positive = 1
    on: Literal["test", "validation"] = "test"
    metrics: Annotated[list[str], Names] = [
        "accuracy", "classes", "calibration", "spectrum", "erank_feature", "nc1", "nc2", "class_means", "drift",
    ]  # fmt: skip
    diagnostics_every: Positive = 1


class Checkpoint(Section):
    """How often a checkpoint is saved, and how many checkpoints are kept."""

    every: Positive = 1
    keep: Positive = 2


class Distributed(Section):
    """How the processes that torchrun starts share a run (docs/scale.md). A single process ignores these settings.

    `order` "any" adds the sums of ranks in the fastest order: the last bits depend on the number of ranks. "fixed" adds
    client by client in ascending id, which gives exactly the result of one process with engine=sequential.
    `store` "shared" keeps clients' states in the run folder, which all ranks must see. "rank" keeps them with the rank
    that trains the client, in its copy of the run folder. Ranks wait for each other at most `timeout_seconds`.
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
"""Sections whose keys are the same in every run."""

NAMED: dict[str, type[Section]] = {
    "dataset": DatasetSettings,
    "partition": PartitionSettings,
    "participation": Nothing,
    "model": ModelSettings,
    "method": Nothing,
}
"""Sections that choose a registered part by `name`. They hold the knobs of the part beside these settings."""

ORDER = (
    "dataset", "partition", "federation", "participation", "model", "local", "optimizer", "method", "evaluation",
    "checkpoint", "distributed",
)  # fmt: skip
