"""What runs cost before they start: their work, and seconds from a few timed steps."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured
from fedblade.core.words import plural
from fedblade.data import Dataset
from fedblade.partitions import Parts
from fedblade.runs import Work, count_work, find_device, guess_work, training_split
from fedblade.studies._timing import Speed, measure_speed

_DAY = 86400.0
Say = Callable[[str], None]
"""Receives, in a few words, what is being done at the moment."""


@dataclass(frozen=True)
class Estimate:
    """The cost of several runs together, and what to do about the data sets that are not on this machine.

    `unknown` runs are on data sets of unknown size. `seconds` come from `timings` measurements of a few steps on
    `device`, and leave out the `untimed` runs, whose data are not here; they are None if no run has its data here.
    """

    client_steps: int
    seconds: float | None
    exact: bool
    unknown: int
    absent: dict[str, str]
    runs: int
    untimed: int = 0
    timings: int = 0
    device: str = "cpu"

    def sentence(self) -> str:
        """The cost in one line."""
        steps = f"{'' if self.exact else 'about '}{self.client_steps:,} client-steps"
        if not self.exact:
            steps += " (guessed from the sizes of data sets that are not here)"
        if self.unknown:
            steps += f", and {plural(self.unknown, 'run')} of unknown size"
        return f"{steps}, {self._time()}"

    def _time(self) -> str:
        if self.seconds is None:
            return "time unknown without the data"
        machine = "GPU" if self.device == "cuda" else "CPU"
        advice = "; use a GPU" if machine == "CPU" and self.seconds > _DAY else ""
        timings = f"(from {plural(self.timings, 'timing')} of a few steps)"
        time = f"about {time_in_words(self.seconds)} on this machine's {machine}{advice}"
        if not self.untimed:
            return f"{time} {timings}"
        here = f"{self.runs - self.untimed} of {plural(self.runs, 'run')}"
        return f"{time} for {here} {timings}, unknown for the others without their data"


def find_data(configs: Iterable[RunConfig], say: Say = lambda _: None) -> tuple[dict[str, Dataset], dict[str, str]]:
    """The data sets of runs by request, and by name what to do about the data sets that are not on this machine."""
    present: dict[str, Dataset] = {}
    absent: dict[str, str] = {}
    for request, chosen in {_data_request(config): config.dataset for config in configs}.items():
        say(f"reading {chosen.name}")
        try:
            present[request] = chosen.make()
        except Misconfigured as error:
            absent[chosen.name] = str(error)
    return present, absent


def estimate_cost(
    runs: Sequence[tuple[RunConfig, int]], say: Say = lambda _: None, on_timing: Say = lambda _: None
) -> Estimate:
    """The cost of runs, given as configurations and rounds already done; `on_timing` is called before every timing.

    All data sets are looked for before the first timing, which may take long.
    """
    began = time.perf_counter()
    present, absent = find_data((config for config, _ in runs), say)
    reading = time.perf_counter() - began
    by_data: dict[str, list[tuple[RunConfig, int]]] = {}
    for config, done in runs:
        by_data.setdefault(_data_request(config), []).append((config, done))
    workloads: list[Work | None] = []
    seconds: list[float] = []
    timings = _Timings(say, on_timing)
    for request, group in by_data.items():
        if request not in present:
            workloads += [guess_work(config, done) for config, done in group]
            continue
        for work, speed in _with_data(group, present[request], timings):
            workloads.append(work)
            seconds.append(speed.seconds(work))
    known = [work for work in workloads if work is not None]
    return Estimate(
        client_steps=sum(work.client_steps for work in known),
        seconds=reading + timings.start + sum(seconds) if seconds or not runs else None,
        exact=all(work.exact for work in known),
        unknown=len(workloads) - len(known),
        absent=absent,
        runs=len(runs),
        untimed=len(runs) - len(seconds),
        timings=len(timings.done),
        device=find_device(runs[0][0].general.device).type if runs else "cpu",
    )


def _data_request(config: RunConfig) -> str:
    """A key for the data that a run asks for."""
    return repr((config.dataset.name, config.dataset.knobs))


@dataclass(frozen=True)
class _Timings:
    """One timing for runs whose rounds cost the same, whatever the split, the number of rounds and the knobs."""

    say: Say
    on_timing: Say
    done: dict[str, Speed] = field(default_factory=dict)

    @property
    def start(self) -> float:
        """Seconds that come once, not in every run."""
        return sum(speed.start for speed in self.done.values())

    def speed(self, config: RunConfig, dataset: Dataset) -> Speed:
        """The speed of a run."""
        general, federation, shape = config.general, config.federation, dataset.input_shape
        precision = (general.device, general.engine, general.dtype, general.tf32, general.autocast)
        sizes = (shape, len(dataset.test), config.local.batch_size, federation.clients_per_round)
        tables = {name: config.table()[name] for name in ("model", "evaluation", "checkpoint")}
        key = repr((config.method.name, config.dataset_settings, tables, sizes, precision))
        if key not in self.done:
            inputs = "×".join(map(str, shape))
            self.on_timing(f"{config.method.name}, {config.model.name}, inputs {inputs}")
            self.done[key] = measure_speed(config)
        return self.done[key]


def _with_data(runs: Sequence[tuple[RunConfig, int]], dataset: Dataset, timings: _Timings) -> list[tuple[Work, Speed]]:
    """Work and speed of runs on one data set; runs of the same split share it."""
    splits: dict[str, Parts] = {}
    costs: list[tuple[Work, Speed]] = []
    for config, done in runs:
        key = _split_request(config)
        if key not in splits:
            timings.say(f"splitting {config.dataset.name} with {config.partition.name}, seed {config.split_seed}")
            splits[key] = training_split(config, dataset)
        speed = timings.speed(config, dataset)
        work = count_work(
            config,
            splits[key],
            skip_singletons=speed.skip_singletons,
            group_size=speed.group_size,
            first_round=done,
            diagnostics_every=speed.diagnostics_every,
        )
        costs.append((work, speed))
    return costs


def _split_request(config: RunConfig) -> str:
    """A key for the split that a run asks for."""
    table = config.table()
    clients = table["federation"]["num_clients"]
    return repr((table["partition"], table["dataset"], clients, config.evaluation.on, config.split_seed))


def time_in_words(seconds: float) -> str:
    """A time in the unit that a person would use."""
    for unit, size in (("days", _DAY), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 1.5 * size:
            count = seconds / size
            return f"{count:,.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 1.5 else "a second"
