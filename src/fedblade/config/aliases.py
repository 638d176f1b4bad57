"""Names that users of other libraries type, such as `learning_rate`, and the keys they stand for.

Wherever a short key is allowed, on the command line and in Python, these names are allowed too. The configuration of
the run has the key itself.
"""

from collections.abc import Mapping

ALIASES: Mapping[str, tuple[str, ...]] = {
    "method": ("algorithm", "strategy"),
    "dataset": ("dataset_name",),
    "model": ("network", "backbone", "arch"),
    "federation.num_clients": ("n_clients", "num_nodes", "num_supernodes", "num_users", "num_partitions"),
    "federation.clients_per_round": ("cohort_size", "min_fit_clients", "sampled_clients"),
    "federation.rounds": (
        "num_rounds", "n_rounds", "num_server_rounds", "global_rounds", "comm_rounds", "communication_rounds",
    ),
    "partition.alpha": ("dirichlet_alpha",),
    "local.epochs": ("local_epochs", "local_num_epochs", "num_epochs", "n_epochs"),
    "local.steps": ("local_steps", "local_iterations", "num_steps"),
    "local.batch_size": ("local_batch_size", "train_batch_size", "batchsize"),
    "optimizer.lr": ("learning_rate", "local_learning_rate", "client_learning_rate", "client_lr", "local_lr"),
    "optimizer.weight_decay": ("wd", "l2"),
    "optimizer.schedule": ("lr_schedule", "lr_scheduler", "scheduler"),
    "optimizer.clip": ("clip_norm", "grad_clip", "max_grad_norm", "gradient_clip_val"),
    "evaluation.every": ("eval_every", "evaluation_frequency"),
    "stop.max_seconds": ("max_time",),
    "stop.patience": ("early_stopping", "early_stopping_patience"),
}  # fmt: skip
"""By key (or section, for the name of its part), the names that stand for it."""

_FRACTION = "give clients_per_round, which is a number of clients and not a share of them"
_DEVICE = "give device=cuda (one GPU) or device=cpu"
_LOSS = "the method decides the loss; `fedblade list methods` shows the methods"
_OPTIMISER = "the clients' optimiser is SGD, and [optimizer] has its settings, such as lr"
_FOLDER = "the folder of a run is --out DIR on the command line and out='DIR' in Python"
INSTEAD: Mapping[str, str] = {
    "fraction": _FRACTION,
    "fraction_fit": _FRACTION,
    "frac": _FRACTION,
    "participation_rate": _FRACTION,
    "fraction_evaluate": "evaluation.every says how often the model is measured; all test samples are used",
    "test_size": "the data set has its own test samples; evaluation.on=validation holds out training samples",
    "max_epochs": "rounds is how many rounds there are, and epochs how often a client goes through its samples in one",
    "num_workers": "clients train side by side without loader processes; `--jobs` trains several runs at a time",
    "nesterov": "the clients' optimiser is SGD with momentum and without Nesterov's step",
    "precision": "give dtype (float32 or float64) or autocast=bf16",
    "gpu": _DEVICE,
    "cuda": _DEVICE,
    "use_gpu": _DEVICE,
    "loss": _LOSS,
    "criterion": _LOSS,
    "opt": _OPTIMISER,
    "optim": _OPTIMISER,
    "out": _FOLDER,
    "output_dir": _FOLDER,
    "save_dir": _FOLDER,
    "seeds": "a run has one seed; `fedblade compare` and `fedblade sweep` take several",
}
"""Names that no key has the meaning of, and what to do."""


def key_of(alias: str) -> str | None:
    """The key that a name stands for, None if it stands for none. A section may come first: `optimizer.wd`."""
    section, _, name = alias.rpartition(".")
    keys = (key for key, names in ALIASES.items() if name in names)
    return next((key for key in keys if section in ("", key.partition(".")[0])), None)


def alias_names() -> list[str]:
    """All names that stand for a key."""
    return [name for names in ALIASES.values() for name in names]
