"""`digits` and `quickstart`: the engines against each other and against a plain PyTorch loop, on the CPU."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedblade.bench import _plain
from fedblade.bench._base import Benchmark, Case, Measured, Options, Result, at_least
from fedblade.bench._one_thread import one_thread
from fedblade.bench._timing import alternate, median, paired_ratios
from fedblade.bench._workload import Workload, training_seconds
from fedblade.runs import load_config, prepare

_DIGITS = "20 equal clients, small CNN on digits, batch 32, 1 epoch, FedAvg, float32, training only"
_QUICKSTART = "10 rounds of the quickstart preset: FedBlade, 10 of 20 ragged clients, 3 epochs, training only"
DIGITS = Workload(rounds=5)
SEQUENTIAL = Case("stacked over sequential", _DIGITS, at_least(6.5))
PLAIN = Case("stacked over a plain loop", f"{_DIGITS}; DataLoader, deepcopy, torch.optim.SGD, averaged state dicts")
QUICKSTART = Case("stacked over sequential", _QUICKSTART, at_least(2))
MODELS = ("resnet20", "mobilenet_v1", "mobilenet_v2", "efficientnet_b0_small")
_RAGGED = {
    "rounds": 1, "clients_per_round": 4, "epochs": 1, "method": "fedavg", "evaluation.metrics": ["accuracy"],
    "device": "cpu",
}  # fmt: skip
_LARGER = "a round of 4 ragged clients with a larger model, digits, 1 epoch, batch 32, FedAvg, training only"


def measure_digits(options: Options, work: Workload = DIGITS, usual: int = 11) -> Measured:
    """Seconds per round of both engines, with the threads that each chooses, and of the plain loop, taking turns."""
    options.require_cpu()
    setups = [prepare(work.config(engine)) for engine in ("stacked", "sequential")]
    with tempfile.TemporaryDirectory() as folder:
        sides = [*map(training_seconds, setups), plain_loop(work.write(Path(folder)))]
        alternate(sides, 1)
        stacked, sequential, plain = alternate(sides, options.repetitions(usual))
    yield SEQUENTIAL.label, _compared(stacked, "sequential", sequential, work.rounds)
    yield PLAIN.label, _compared(stacked, "plain loop", plain, work.rounds)


def measure_quickstart(options: Options, rounds: int = 10, usual: int = 7, **changes: Any) -> Measured:
    """Seconds per round of both engines on the preset, taking turns."""
    options.require_cpu()
    settings = {"rounds": rounds, "evaluation.every": rounds, "device": "cpu", **changes}
    configs = [load_config("quickstart", settings | {"engine": each})[0] for each in ("stacked", "sequential")]
    sides = [training_seconds(prepare(config)) for config in configs]
    alternate(sides, 1)
    stacked, sequential = alternate(sides, options.repetitions(usual))
    yield QUICKSTART.label, _compared(stacked, "sequential", sequential, rounds)


def measure_models(options: Options, models: tuple[str, ...] = MODELS, usual: int = 3, **changes: Any) -> Measured:
    """Seconds of a round with the engine that `auto` takes, whichever that is, over one client after another."""
    options.require_cpu()
    for model in models:
        settings = _RAGGED | {"model": model} | changes
        configs = [load_config("quickstart", settings | {"engine": each})[0] for each in ("auto", "sequential")]
        setups = [prepare(config) for config in configs]
        sides = [training_seconds(setup) for setup in setups]
        alternate(sides, 1)
        auto, sequential = alternate(sides, options.repetitions(usual))
        ratios, note = paired_ratios(sequential, auto), f"auto takes {setups[0].engine.name}"
        medians = {"auto s/round": median(auto), "sequential s/round": median(sequential)}
        yield _label(model), Result(median(ratios), medians, ratios, note)


def _label(model: str) -> str:
    return f"auto, {model}"


def plain_loop(folder: Path) -> Callable[[], float]:
    """A side to time: the rounds of the workload in `folder` as a plain loop."""
    work, (clients, _) = _plain.settings(folder), _plain.read(folder)

    def run() -> float:
        net = _plain.new_net(work["seed"])
        with one_thread():
            began = time.perf_counter()
            for _ in range(work["rounds"]):
                _plain.federated_round(net, clients, work)
            return time.perf_counter() - began

    return run


def _compared(stacked: list[float], other: str, slow: list[float], rounds: int) -> Result:
    ratios = paired_ratios(slow, stacked)
    medians = {"stacked s/round": median(stacked) / rounds, f"{other} s/round": median(slow) / rounds}
    return Result(median(ratios), medians, ratios)


BENCHMARKS = (
    Benchmark("digits", "equal clients on the CPU: engines and a plain loop", (SEQUENTIAL, PLAIN), measure_digits),
    Benchmark("quickstart", "ragged clients on the CPU: both engines", (QUICKSTART,), measure_quickstart),
    Benchmark(
        "models",
        "larger models on the CPU: never much slower than one client after another",
        tuple(Case(_label(model), _LARGER, at_least(0.9)) for model in MODELS),
        measure_models,
    ),
)
