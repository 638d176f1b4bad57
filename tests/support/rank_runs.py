"""Started by torchrun: runs and refusals one after another in the same processes, and what each rank saw of them."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch

from fedblade.core.errors import FedbladeError
from fedblade.core.tree import tree_digest
from fedblade.results import RunDirectory
from fedblade.runs import Driver, RunJob, RunListener, RunRequest, execute, prepare
from fedblade.runs.distributed import _store as _distributed_store
from fedblade.runs.distributed import agreed_config, join_ranks
from support.own_modules import half_frozen
from support.small_federation import BATCH_NORM, configure, read_anew, vectors

FIXED = {"distributed.order": "fixed"}
CHOSEN = {
    "participation": "power_of_choice", "clients_per_round": 3, "rounds": 3, "dropout": 0.4, "partial_work": 0.6,
}  # fmt: skip
UNSEEN = {"unseen": 0.3, "clients_per_round": 3, "test_split": "holdout", "protocol": "ft"}
OWN_STATES = {"distributed.order": "fixed", "distributed.store": "rank"}


def small(method="fedavg", **changes):
    return configure(method, **(BATCH_NORM | {"num_clients": 6, "partition.min_size": 4, "epochs": 1} | changes))


def seen(result):
    """What is the same on all ranks."""
    rows = [{key: value for key, value in row.items() if "seconds" not in key} for row in result.history]
    model = tree_digest(result.model.state_dict())
    summary = {key: result.summary[key] for key in ("status", "accuracy", "engine", "rounds")}
    return {"history": rows, "model": model, "summary": summary, "clients": result.clients}


def frozen(engine, **changes):
    return configure("scaffold", **({"model": "object", "epochs": 1, "engine": engine} | changes))


def alone(config, dataset=None, model=None):
    """The same in one process; rank 0 does it by hand."""
    driver = Driver(prepare(config, dataset or vectors(), model), None, RunListener())
    driver.run()
    rows = [{key: value for key, value in row.items() if "seconds" not in key} for row in driver.history]
    return {"history": rows, "clients": driver.clients}


def own():
    """Torch datasets as a user gives them, in a process that has drawn numbers of its own."""
    np.random.random(os.getpid() % 7)
    return read_anew(vectors())


def refused(work):
    try:
        work()
    except FedbladeError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def main(folder):
    ranks, found = join_ranks(), {}
    _distributed_store._LOOK_SECONDS = 0.5

    def run(config, **options):
        options["folder"] = options.pop("out", None)
        return RunJob(config, ranks=ranks, **({"dataset": vectors()} | options)).execute()

    tuned = {"protocol": "ft", "clients_per_round": 4}
    found["memory"] = seen(run(small("ditto", **tuned, **FIXED)))
    found["rank store"] = seen(run(small("fedper", **tuned, **OWN_STATES), out=folder / "own"))
    found["finished"] = seen(run(small("fedper", **tuned, **OWN_STATES), out=folder / "own", resume=True))
    if ranks.is_rank_0:
        directory = RunDirectory(folder / "own")
        directory.write_json(
            "partition.json", directory.read_json("partition.json") | {"revisions": {"local loop": 99}}
        )
        (directory.path / "folder.json").unlink()
    found["other revision"] = refused(
        lambda: run(small("fedper", **tuned, **OWN_STATES), out=folder / "own", resume=True)
    )
    found["stacked"] = seen(run(small("fedblade", engine="stacked", lr=0.01)))
    found["by name"] = seen(run(small("fedblade", engine="distributed", lr=0.01)))
    found["frozen"] = seen(run(frozen("sequential", **FIXED), model=half_frozen()))
    found["frozen, stacked"] = seen(run(frozen("stacked"), model=half_frozen()))
    found["chosen"] = seen(run(small("scaffold", **CHOSEN, **FIXED)))
    found["chosen, rank store"] = seen(run(small("fednova", **CHOSEN, **OWN_STATES)))
    found["unseen"] = seen(run(small("fedavg-ft", **UNSEEN, **FIXED)))
    found["other weights"] = refused(lambda: run(frozen("sequential"), model=half_frozen(seed=ranks.rank)))
    found["non-finite"] = refused(lambda: run(small(lr=1e200), out=folder / "broken"))
    idle = {"local.last_batch": "drop", "local.batch_size": 1000}
    found["nobody trains"] = refused(lambda: run(small(**idle), out=folder / "idle"))
    found["stacked fixed"] = refused(lambda: run(small(engine="stacked", **FIXED)))
    found["not shared"] = refused(lambda: run(small(), out=folder / f"mine-{ranks.rank}"))
    found["other data"] = refused(lambda: run(small(), dataset=vectors(seed=ranks.rank)))
    found["other settings"] = refused(lambda: agreed_config(ranks, RunRequest(None, {"lr": 0.1 * (1 + ranks.rank)})))
    found["unknown method"] = refused(lambda: small("fedavgg"))
    found["without ranks"] = refused(lambda: execute(small(), dataset=vectors()))
    read = run(small("fedblade", lr=0.01, **FIXED), dataset=own())
    found["own data"] = seen(read) | {"labels": read.model.predict(vectors().test.inputs).tolist()}
    found["after all that"] = seen(run(small(**FIXED)))
    if ranks.is_rank_0:
        for name in ("broken", "idle"):
            found[f"{name} status"] = (RunDirectory(folder / name).read_json("summary.json") or {}).get("status")
        found["alone"] = {
            "memory": alone(small("ditto", **tuned)),
            "rank store": alone(small("fedper", **tuned)),
            "stacked": alone(small("fedblade", engine="stacked", lr=0.01)),
            "own data": alone(small("fedblade", lr=0.01), own()),
            "after all that": alone(small()),
            "frozen": alone(frozen("sequential"), model=half_frozen()),
            "chosen": alone(small("scaffold", **CHOSEN)),
            "chosen, rank store": alone(small("fednova", **CHOSEN)),
            "unseen": alone(small("fedavg-ft", **UNSEEN)),
        }
    (folder / f"rank-{ranks.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert "RANK" in os.environ
    main(Path(sys.argv[1]))
