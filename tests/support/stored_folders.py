"""Makes the run folders that tests/results/stored keeps. Missing folders are added by this command:

    PYTHONPATH=tests python -m support.stored_folders

The folders without `folder.json` have format 0. A stored folder is never made anew: it shows that later versions read
what an earlier version wrote. After a change of the format, or after a raised revision (the folders that use the part
are refused from then on), add a folder under a new name instead, and a line to `FOLDERS`. The stored folders leave out
`.lock` files, which are empty.
"""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fedblade
from fedblade.config.run_config import RunConfig
from fedblade.engines.nodes import Reply, Request
from fedblade.flower._journal import RunJournal
from fedblade.flower._server import deployed_setup
from fedblade.runs import RunJob, RunListener, Setup, load_config
from fedblade.studies import plan_comparison, run_planned
from support.local_transport import LocalTransport
from support.node_runs import QUICK, nodes

STORED = Path(__file__).parents[1] / "results" / "stored" / "folders"
SMALL = {
    "model": "mlp", "model.hidden": [8], "model.dim": 6, "num_clients": 4, "clients_per_round": 2, "rounds": 4,
    "epochs": 2, "lr": 0.1, "batch_size": 64, "device": "cpu", "checkpoint.keep": 1,
    "metrics": "accuracy,classes,spectrum,drift",
}  # fmt: skip
OWN = {"test_split": "matched", "protocol": "gapa"}


class Stop(RunListener):
    """Interrupts a run after a round, or after some of the clients' own models were measured."""

    def __init__(self, *, after_round: int | None = None, after_models: int | None = None) -> None:
        self.round, self.models = after_round, after_models

    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == self.round:
            raise KeyboardInterrupt

    def on_personal_model(self, done: int, total: int) -> None:
        if done == self.models:
            raise KeyboardInterrupt


def own_module() -> nn.Module:
    """A classifier of the digits with weights that are equal on all machines; its first layer stays as it is."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 10))
    with torch.no_grad():
        for leaf in module.parameters():
            leaf.copy_((torch.arange(leaf.numel()) * 37 % 101 / 128 - 0.375).reshape(leaf.shape))
    module[1].requires_grad_(False)
    return module


def told_twice(request: Request, reply: Reply) -> list[Reply]:
    """In the first round another node sends the same reply too, which the server refuses and notes in its journal."""
    first = request.kind == "train" and request.facts["round"] == 0
    return [replace(reply, node=99), reply] if first else [reply]


def on_nodes(config: RunConfig, out: Path, place: Path, listener: RunListener) -> fedblade.Result:
    """Begin a run in `out` whose clients are nodes with folders in `place`, or go on with it."""
    transport = LocalTransport(nodes(place, config.federation.num_clients), tamper=told_twice)
    journal = RunJournal(out)

    def setup() -> Setup:
        journal.begin()
        return deployed_setup(config, QUICK, transport, out, journal)

    return RunJob(config, out, resume=out.exists(), listener=listener, make_setup=setup).execute()


def run(out: Path, listener: RunListener | None = None, **keys: Any) -> None:
    """One small run, which the listener may interrupt; a key that is None is left out."""
    given = {key: value for key, value in (SMALL | keys).items() if value is not None}
    with suppress(KeyboardInterrupt):
        fedblade.run("quickstart", out=out, listener=listener or RunListener(), **given)


def comparison(out: Path) -> None:
    """Two methods and two seeds, as `fedblade compare --out` lays them out."""
    cells = plan_comparison("quickstart", SMALL, ["fedavg", "fedetf"], [1, 2], out)
    run_planned(cells, lambda label: nullcontext(RunListener()))


def deployed(out: Path) -> None:
    """A run whose clients are nodes; what nodes keep is on the nodes."""
    config, _ = load_config("quickstart", SMALL | {"method": "fedprox"})
    with tempfile.TemporaryDirectory() as place, suppress(KeyboardInterrupt):
        on_nodes(config, out, Path(place), Stop(after_round=2))


FOLDERS: dict[str, Callable[[Path], None]] = {
    "finished": lambda out: run(out, method="fedblade"),
    "interrupted": lambda out: run(out, Stop(after_round=2), method="fedavg"),
    "comparison": comparison,
    "personal": lambda out: run(out, Stop(after_round=2), method="ditto", **OWN),
    "measuring": lambda out: run(out, Stop(after_models=2), method="fedper", **OWN),
    "deployed": deployed,
    "format-1": lambda out: run(out, Stop(after_round=2), method="scaffold", momentum=0.0),
    "module": lambda out: run(
        out, Stop(after_round=2), method="fedavg", **{"model": own_module(), "model.hidden": None, "model.dim": None}
    ),
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, make_folder in FOLDERS.items():
        if not (STORED / name).exists():
            with tempfile.TemporaryDirectory() as made:
                make_folder(Path(made) / name)
                shutil.copytree(Path(made) / name, STORED / name, ignore=shutil.ignore_patterns(".lock"))
            print(name)
