"""A run that several processes share: rank 0 carries it out like a single process, and the other ranks serve rank 0.

Rank 0 sends messages: `prepare` the run, open the `store`, train shares of a cohort, and the `end` with the result or
with an error. Between messages the other ranks wait.
"""

import contextlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured, Unsupported
from fedblade.core.state import ClientStore
from fedblade.core.tree import Tree, tree_digest
from fedblade.data import Dataset
from fedblade.engines.distributed import DistributedEngine
from fedblade.engines.ranks import (
    Ranks,
    RankWorker,
    describe_error,
    join,
    launched,
    raise_described_error,
    raise_first_error,
    serve,
)
from fedblade.results import RunDirectory
from fedblade.runs._device import find_device
from fedblade.runs._reuse import sources_of
from fedblade.runs._setup import Setup, prepare
from fedblade.runs._threads import compute_settings
from fedblade.runs.distributed._agreement import leave_after_rank_0
from fedblade.runs.distributed._process import ending_together
from fedblade.runs.distributed._store import check_store, describe_store, is_per_rank, open_store

_DATA = "data set"
_SHOWN = 12
"""Characters of a digest that an error shows."""


def join_ranks() -> Ranks | None:
    """Join the other processes that torchrun started; None if this process was not started by torchrun."""
    return join() if launched() else None


def refuse_ranks() -> None:
    """Refuse to do the work of one process in every process that torchrun started."""
    if launched():
        raise Unsupported(
            "torchrun is for single runs: `fedblade run` and fedblade.run. Start compare, sweep, reproduce and "
            "everything else without torchrun."
        )


def lead_setup(ranks: Ranks, config: RunConfig, dataset: Dataset | None, model: nn.Module | None) -> Setup:
    """Rank 0: let all ranks build the run, and compare what they built."""
    ranks.broadcast({"kind": "prepare"})
    return _common_setup(ranks, config, dataset, model)


def lead_store(
    ranks: Ranks, config: RunConfig, setup: Setup, directory: RunDirectory | None
) -> tuple[Setup, ClientStore]:
    """Rank 0: let all ranks open their stores; returns the run with all ranks as its engine, and their common store."""
    facts = describe_store(ranks, config, directory)
    ranks.broadcast({"kind": "store", "facts": facts})
    check_store(ranks, config, directory, facts)
    worker = _worker(ranks, config, setup, open_store(ranks, config, directory), owned=is_per_rank(config, directory))
    engine = DistributedEngine(worker)
    note = f"{ranks.world} ranks share every cohort out; rank 0 measures and writes"
    return replace(setup, engine=engine, notes=(*setup.notes, note)), engine.store


def serve_rank_0(
    ranks: Ranks, config: RunConfig, out: Path | None, dataset: Dataset | None, model: nn.Module | None
) -> tuple[Setup, Mapping[str, Any], Tree]:
    """Do what rank 0 asks until it ends the run: this rank's setup, and the result and the tensors that rank 0 sent."""
    directory = None if out is None else RunDirectory(out)
    setup: Setup | None = None
    worker: RankWorker | None = None
    with contextlib.ExitStack() as inside:
        inside.enter_context(ending_together(ranks))
        while True:
            message, tree = ranks.receive_broadcast()
            if message["kind"] == "end":
                break
            try:
                if message["kind"] == "prepare":
                    setup = _common_setup(ranks, config, dataset, model)
                    inside.enter_context(compute_settings(setup))
                elif message["kind"] == "store" and setup is not None:
                    check_store(ranks, config, directory, message["facts"])
                    store = open_store(ranks, config, directory)
                    worker = _worker(ranks, config, setup, store, owned=is_per_rank(config, directory))
                elif worker is not None:
                    serve(worker, message, tree)
            except Exception:
                # Rank 0 has received the error too, and ends the run.
                if ranks.broken:
                    raise
    if "error" in message:
        leave_after_rank_0()
        raise_described_error(None, message["error"])
    return setup or prepare(_config_of_rank(ranks, config), dataset, model), message["result"], tree


def _common_setup(ranks: Ranks, config: RunConfig, dataset: Dataset | None, model: nn.Module | None) -> Setup:
    """Build the run on this rank. All ranks must build the same run."""
    setup, failed = None, None
    try:
        rank_config = _config_of_rank(ranks, config)
        if rank_config.general.device.startswith("cuda"):
            torch.cuda.set_device(ranks.local_rank)
        setup = prepare(rank_config, dataset, model)
    except Exception as error:
        failed = error
    facts = (
        _facts(setup) if failed is None and setup is not None else describe_error(failed or RuntimeError("no setup"))
    )
    everyone = ranks.gather(facts)
    raise_first_error(ranks, everyone, failed)
    _refuse_other_facts(everyone)
    assert setup is not None  # noqa: S101 - or an error was refused
    ranks.prepare(setup.test_order.device, config.distributed.timeout_seconds)
    return setup


def _config_of_rank(ranks: Ranks, config: RunConfig) -> RunConfig:
    """The configuration with the engine that a rank uses for its clients, and with the device of this rank."""
    engine, order = config.general.engine, config.distributed.order
    if order == "fixed" and engine == "stacked":
        raise Unsupported(
            "distributed.order = 'fixed' cannot be kept by engine 'stacked': the last bits of a client depend on its "
            "neighbours. Use engine=sequential or distributed.order=any."
        )
    if engine in ("auto", "distributed"):
        engine = "sequential" if order == "fixed" else "auto"
    changes = {"engine": engine, "device": _device_of_rank(ranks, config.general.device)}
    return replace(config, general=config.general.model_copy(update=changes))


def _device_of_rank(ranks: Ranks, asked: str) -> str:
    """The CPU, or the GPU with the number that this rank has on its machine."""
    device = find_device(asked)
    if device.type == "cpu":
        return "cpu"
    if device.index is not None:
        raise Misconfigured(
            f"device = '{asked}' is one GPU for all ranks, and every rank needs another GPU. Use device=cuda."
        )
    if ranks.local_world > torch.cuda.device_count():
        raise Misconfigured(
            f"{ranks.local_world} ranks were started on {socket.gethostname()}, which has {torch.cuda.device_count()} "
            f"GPU(s). Start one rank per GPU (--nproc-per-node), or use device=cpu."
        )
    return f"cuda:{ranks.local_rank}"


def _facts(setup: Setup) -> dict[str, Any]:
    """Facts that must be the same on all ranks, the host of this rank, and where its data come from."""
    same = {
        "kind of device": setup.test_order.device.type,
        "engine": setup.engine.name,
        **{f"file '{path}'": digest for path, digest in sources_of(setup.config).items()},
        _DATA: setup.dataset.digest(),
        "split of the data": setup.clients.train.digest(),
        "initial state": tree_digest(setup.start.flat()),
    }
    return {"same": same, "host": socket.gethostname(), "source": setup.dataset.source}


def _refuse_other_facts(everyone: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a rank that built another run than rank 0. Of several differences, the first one is the cause."""
    first = everyone[0]
    for rank, its_facts in enumerate(everyone):
        for key, value in first["same"].items():
            if its_facts["same"].get(key) != value:
                own, zero = _fact_text(its_facts, key), _fact_text(first, key)
                raise Misconfigured(
                    f"rank {rank} on {its_facts['host']} has another {key} than rank 0 on {first['host']}: {own}, and "
                    f"rank 0 has {zero}. All ranks need the same data, the same files and the same kind of machine."
                )


def _fact_text(facts: Mapping[str, Any], key: str) -> str:
    """A fact of a rank in an error: digests are cut short, and the source of the data is named."""
    short = str(facts["same"].get(key))[:_SHOWN]
    return f"{short} ({facts['source']})" if key == _DATA else short


def _worker(ranks: Ranks, config: RunConfig, setup: Setup, store: ClientStore, *, owned: bool) -> RankWorker:
    return RankWorker(
        ranks=ranks,
        engine=setup.engine,
        problem=setup.problem,
        planner=setup.planner,
        start=setup.start,
        store=store,
        diagnostic_sums={sum_.name: sum_ for metric in setup.metrics for sum_ in metric.local},
        samples=setup.test,
        indices=setup.test_order,
        order=config.distributed.order,
        owned=owned,
    )
