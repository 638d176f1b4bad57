"""`digits`, `quickstart`, `busy` and `models`: engines against each other and a plain PyTorch loop, on the CPU."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import plain_pytorch
from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, at_least
from benchmarks.busy import busy_process
from benchmarks.digits_federation import DigitsFederation, training_seconds
from benchmarks.timing import alternate, median, one_thread, paired_ratios
from fedblade.runs import load_config, prepare

_DIGITS = "20 equal clients, small CNN on digits, batch 32, 1 epoch, FedAvg, float32, training only"
_QUICKSTART = "10 rounds of the quickstart preset: 10 of 20 ragged clients, 3 epochs, training only"
DIGITS = DigitsFederation(rounds=5)
SEQUENTIAL = Case("stacked over sequential", _DIGITS, at_least(6.5))
_LOOP = f"{_DIGITS}; DataLoader, deepcopy, torch.optim.SGD, averaged state dicts"
PLAIN = Case("stacked over a plain loop", _LOOP, at_least(7))
BUSY = Case("stacked over a plain loop", f"beside a process that multiplies matrices on all cores: {_LOOP}",
            at_least(3.5))  # fmt: skip
QUICKSTART = {
    method: Case(f"{name}, stacked over sequential", _QUICKSTART, at_least(3))
    for method, name in (("fedavg", "FedAvg"), ("scaffold", "SCAFFOLD"), ("fedblade", "FedBlade"))
}
MODELS = ("resnet20", "mobilenet_v1", "mobilenet_v2", "efficientnet_b0_small")
_RAGGED = {
    "rounds": 1, "clients_per_round": 4, "epochs": 1, "method": "fedavg", "evaluation.metrics": ["accuracy"],
    "device": "cpu",
}  # fmt: skip
_LARGER = "a round of 4 ragged clients with a larger model, digits, 1 epoch, batch 32, FedAvg, training only"


def measure_digits(options: Options, federation: DigitsFederation = DIGITS, repetitions: int = 11) -> Measured:
    """Seconds per round of both engines and of the plain loop, taking turns; an engine chooses its threads."""
    options.require_cpu()
    setups = [prepare(federation.config(engine)) for engine in ("stacked", "sequential")]
    with tempfile.TemporaryDirectory() as folder:
        sides = [*map(training_seconds, setups), plain_loop(federation.write(Path(folder)))]
        alternate(sides, 1)
        stacked, sequential, plain = alternate(sides, options.repetitions(repetitions))
    yield SEQUENTIAL.label, _compared(stacked, "sequential", sequential, federation.rounds)
    yield PLAIN.label, _compared(stacked, "plain loop", plain, federation.rounds)


def measure_busy(options: Options, federation: DigitsFederation = DIGITS, repetitions: int = 7) -> Measured:
    """Seconds per round of the stacked engine and of the plain loop, taking turns beside another process."""
    options.require_cpu()
    with tempfile.TemporaryDirectory() as folder, busy_process():
        sides = [training_seconds(prepare(federation.config("stacked"))), plain_loop(federation.write(Path(folder)))]
        alternate(sides, 1)
        stacked, plain = alternate(sides, options.repetitions(repetitions))
    yield BUSY.label, _compared(stacked, "plain loop", plain, federation.rounds)


def measure_quickstart(options: Options, rounds: int = 10, repetitions: int = 7, **changes: Any) -> Measured:
    """Seconds per round of both engines on the preset, taking turns, for every method."""
    options.require_cpu()
    settings = {"rounds": rounds, "evaluation.every": rounds, "device": "cpu", **changes}
    for method, case in QUICKSTART.items():
        chosen = settings | {"method": method}
        configs = [load_config("quickstart", chosen | {"engine": engine})[0] for engine in ("stacked", "sequential")]
        sides = [training_seconds(prepare(config)) for config in configs]
        alternate(sides, 1)
        stacked, sequential = alternate(sides, options.repetitions(repetitions))
        yield case.label, _compared(stacked, "sequential", sequential, rounds)


def measure_models(
    options: Options, models: tuple[str, ...] = MODELS, repetitions: int = 3, **changes: Any
) -> Measured:
    """Seconds of a round with the sequential engine over the engine that `auto` takes."""
    options.require_cpu()
    for model in models:
        settings = _RAGGED | {"model": model} | changes
        configs = [load_config("quickstart", settings | {"engine": engine})[0] for engine in ("auto", "sequential")]
        setups = [prepare(config) for config in configs]
        sides = [training_seconds(setup) for setup in setups]
        alternate(sides, 1)
        auto, sequential = alternate(sides, options.repetitions(repetitions))
        ratios, note = paired_ratios(sequential, auto), f"auto takes {setups[0].engine.name}"
        medians = {"auto s/round": median(auto), "sequential s/round": median(sequential)}
        yield _label(model), Result(median(ratios), medians, ratios, note)


def _label(model: str) -> str:
    return f"auto, {model}"


def plain_loop(folder: Path) -> Callable[[], float]:
    """A side to time: the rounds of the federation in `folder` as a plain loop."""
    settings, (clients, _) = plain_pytorch.read_settings(folder), plain_pytorch.read_data(folder)

    def run() -> float:
        net = plain_pytorch.new_net(settings["seed"])
        with one_thread():
            began = time.perf_counter()
            for _ in range(settings["rounds"]):
                plain_pytorch.federated_round(net, clients, settings)
            return time.perf_counter() - began

    return run


def _compared(stacked: list[float], other: str, slow: list[float], rounds: int) -> Result:
    ratios = paired_ratios(slow, stacked)
    medians = {"stacked s/round": median(stacked) / rounds, f"{other} s/round": median(slow) / rounds}
    return Result(median(ratios), medians, ratios)


BENCHMARKS = (
    Benchmark("digits", "equal clients on the CPU: engines and a plain loop", (SEQUENTIAL, PLAIN), measure_digits),
    Benchmark("quickstart", "ragged clients on the CPU: both engines", tuple(QUICKSTART.values()), measure_quickstart),
    Benchmark("busy", "equal clients on a CPU that does other work: a plain loop", (BUSY,), measure_busy),
    Benchmark(
        "models",
        "larger models on the CPU: never much slower than one client after another",
        tuple(Case(_label(model), _LARGER, at_least(0.9)) for model in MODELS),
        measure_models,
    ),
)
