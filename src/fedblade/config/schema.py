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
    """A table of the configuration: frozen, and unknown keys are errors.

    The sentence below a key is its meaning in `fedblade list settings` and in the file of `fedblade config`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class General(Section):
    """Keys outside any table."""

    id: str = "custom"
    """A name for the configuration; it is written into the run folder."""
    seed: Annotated[int, Field(ge=0)] = 0
    """The seed of all random numbers."""
    engine: str = "auto"
    """How clients are computed; auto: side by side (stacked) where that is possible, else one by one (sequential)."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or cuda:N."""
    dtype: Literal["float32", "float64"] = "float32"
    """The type of all numbers."""
    autocast: Literal["none", "bf16"] = "none"
    """The type of the numbers in a body's forward pass, if it is another than dtype."""
    tf32: bool = False
    """Whether float32 products on a GPU may round to TF32."""
    trackers: Annotated[list[Literal["tensorboard", "mlflow", "wandb"]], Names] = []
    """Programs that follow the run. They do not change its result, so they may change when the run goes on."""


class DatasetSettings(Section):
    """Settings for any data set."""

    augment: str = "none"
    """How training samples are augmented: none, crop_flip, or the recipe of a paper, such as fedblade."""
    test_split: Literal["global", "matched", "matched_counts", "proportional", "holdout"] = "global"
    """Which test samples a client gets."""


class PartitionSettings(Section):
    """Settings for any partition."""

    seed: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """The seed of the split; auto: the run's seed. With a number every run has the same split."""


class ModelSettings(Section):
    """Settings for any model. `init` "auto" is "given" for a user's module; the library's models are always drawn."""

    output: Literal["auto", "features", "logits"] = "auto"
    """What a module of your own returns; auto: the library finds out."""
    init: Literal["auto", "seed", "given"] = "auto"
    """Where the first weights come from: a module of your own keeps its own (given), or they are drawn (seed)."""
    norm_stats: Literal["running", "batch"] = "running"
    """The statistics of BatchNorm when a model is measured: the running ones, or those of each batch."""
    neck: Positive | Literal["none"] = "none"
    """The width of a linear layer between backbone and head."""
    neck_hidden: Annotated[float, Field(gt=0)] | Literal["none"] = "none"
    """Gives the neck a hidden layer with ReLU, as wide as this number times the features of the model."""
    neck_norm: Literal["none", "batch"] = "none"
    """Whether the neck ends with a BatchNorm."""

    @property
    def neck_layers(self) -> Neck | None:
        """The neck, or None without one."""
        if self.neck == "none":
            return None
        return Neck(self.neck, None if self.neck_hidden == "none" else self.neck_hidden, self.neck_norm)


class Nothing(Section):
    """No settings besides the knobs of the part."""


class Federation(Section):
    """Population, cohorts and rounds."""

    num_clients: Positive = 20
    """How many clients there are."""
    clients_per_round: Positive = 10
    """How many clients train in a round. If it is not set and there are fewer clients, all train."""
    rounds: Positive = 40
    """How many rounds there are."""
    weighting: Literal["samples", "uniform", "batches"] = "samples"
    """The weight of a client in the average: its number of samples or of batches, or the same for every client."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """In a simulation, the probability that a client of the cohort never answers; at least one client answers."""
    partial_work: Annotated[float, Field(ge=0, le=1)] = 0.0
    """In a simulation, the probability that a client finishes only some of its local steps in a round."""
    unseen: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of the clients that never train and are only evaluated."""


def unseen_clients(share: float, clients: int) -> int:
    """The number of clients that `federation.unseen` keeps from training: a share of `clients`, at least one."""
    return max(1, round(share * clients)) if share else 0


class Local(Section):
    """The work of a client in a round. If a phase of the method sets its epochs, they go before `epochs` and `steps`.

    With `steps`, a client starts one epoch after another, each in a new order, and stops after this many steps.
    """

    epochs: Positive = 1
    """How often a client goes through its samples."""
    steps: Positive | Literal["none"] = "none"
    """How many steps a client makes, whatever the number of its samples; takes the place of epochs."""
    batch_size: Positive = 32
    """How many samples a step uses."""
    last_batch: Literal["keep", "drop", "wrap"] = "keep"
    """What happens to a last batch that is not full: it is used, left out, or filled from the start of the epoch."""


class Optimizer(Section):
    """Local SGD, and its learning rate over rounds."""

    name: Literal["sgd"] = "sgd"
    """The optimiser of the clients."""
    lr: Annotated[float, Field(gt=0)] = 0.01
    """The learning rate of the clients."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """The momentum of the clients."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """The weight decay of the clients."""
    schedule: Literal["constant", "exp", "step"] = "constant"
    """The learning rate over rounds: the same, times 0.99 per round, or times 0.1 at 1/2 and at 3/4 of the run."""
    persist: bool = False
    """Whether a client keeps its momentum from one round to the next."""
    clip: Annotated[float, Field(gt=0)] | Literal["none"] = "none"
    """The largest norm of a gradient; none: what the method has by default, if anything."""

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

    In the last round all metrics are measured.
    """

    protocol: Literal["last10", "last5", "final", "domain", "pers_etf", "gapa", "ft"] = "last10"
    """How accuracies become the number of a table: the mean of the last rounds, the last one, or a paper's protocol."""
    every: Positive = 1
    """Accuracy is measured in every round that this number divides."""
    on: Literal["test", "validation"] = "test"
    """The samples to measure on; validation: a tenth of every client's training data, held out for tuning."""
    metrics: Annotated[list[str], Names] = [
        "accuracy", "classes", "calibration", "spectrum", "erank_feature", "nc1", "nc2", "class_means", "drift",
    ]  # fmt: skip
    """What to measure: names of `fedblade list metrics`, with commas between them."""
    diagnostics_every: Positive | Literal["auto"] = "auto"
    """Metrics other than accuracy are measured in the rounds of `every` that this number divides. With "auto" it is 1
    if they cost little, else 10."""


class Stop(Section):
    """What ends a run before its last round. The round in which it happens is then the last.

    How many rounds fit into `max_seconds` depends on the machine: such a run cannot be repeated to the same round.
    """

    max_seconds: Annotated[float, Field(gt=0)] | Literal["none"] = "none"
    """The run ends with the round in which its rounds, evaluation included, have taken this long, over all starts."""
    patience: Positive | Literal["none"] = "none"
    """The run ends after this many evaluated rounds in a row without a higher accuracy."""


class Checkpoint(Section):
    """How often a checkpoint is saved, and how many checkpoints are kept."""

    every: Positive = 1
    """A checkpoint is saved in every round that this number divides."""
    keep: Positive = 2
    """How many checkpoints are kept."""


class Distributed(Section):
    """How the processes of torchrun share a run (docs/how-to-scale.md). A single process ignores these settings."""

    order: Literal["any", "fixed"] = "any"
    """How sums are added: fastest first (any: last bits vary), or by ascending client (fixed: as in one process)."""
    store: Literal["shared", "rank"] = "shared"
    """Where clients' states are: in a run folder that all ranks see, or with the rank that trains the client."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    """How long ranks wait for each other."""


FIXED: dict[str, type[Section]] = {
    "federation": Federation,
    "local": Local,
    "optimizer": Optimizer,
    "evaluation": Evaluation,
    "stop": Stop,
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
    "stop", "checkpoint", "distributed",
)  # fmt: skip
