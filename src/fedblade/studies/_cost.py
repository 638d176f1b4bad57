"""What runs will cost before they start: their work, and seconds from a few timed steps."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured
from fedblade.core.words import plural
from fedblade.data import Dataset
from fedblade.partitions import Parts
from fedblade.runs import Work, count_work, find_device, guess_work, training_split
from fedblade.studies._speed import Speed, probe

_DAY = 86400.0
Tell = Callable[[str], None]
"""Is told what is being done at the moment, in a few words."""


@dataclass(frozen=True)
class Estimate:
    """The cost of several runs together, and the data sets that are not on this machine, with what to do.

    `seconds` come from `trials` short trials on a `device`; they leave out `untimed` runs, whose data are not here, and
    are None where no run has its data here. `runs` counts all runs.
    """

    client_steps: int
    seconds: float | None
    exact: bool
    unknown: int
    absent: dict[str, str]
    runs: int
    untimed: int = 0
    trials: int = 0
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
        trials = f"(from {plural(self.trials, 'trial')} of a few steps)"
        time = f"about {duration(self.seconds)} on this machine's {machine}{advice}"
        if not self.untimed:
            return f"{time} {trials}"
        here = f"{self.runs - self.untimed} of {plural(self.runs, 'run')}"
        return f"{time} for {here} {trials}, unknown for the others without their data"


def find_data(configs: Iterable[RunConfig], tell: Tell = lambda _: None) -> tuple[dict[str, Dataset], dict[str, str]]:
    """The data sets of runs by their request, and by name what to do about those that are not on this machine."""
    found: dict[str, Dataset] = {}
    absent: dict[str, str] = {}
    for key, chosen in {_request(config): config.dataset for config in configs}.items():
        tell(f"reading {chosen.name}")
        try:
            found[key] = chosen.make()
        except Misconfigured as error:
            absent[chosen.name] = str(error)
    return found, absent


def estimate(
    runs: Sequence[tuple[RunConfig, int]], tell: Tell = lambda _: None, on_trial: Tell = lambda _: None
) -> Estimate:
    """The cost of runs, each given with the rounds it has behind it; `on_trial` is told of every trial that starts.

    All data sets are looked for before the first trial, which may take long.
    """
    found, absent = find_data((config for config, _ in runs), tell)
    by_data: dict[str, list[tuple[RunConfig, int]]] = {}
    for config, done in runs:
        by_data.setdefault(_request(config), []).append((config, done))
    works: list[Work | None] = []
    timed: list[float] = []
    trials = _Trials(tell, on_trial)
    for key, group in by_data.items():
        if key not in found:
            works += [guess_work(config, done) for config, done in group]
            continue
        for work, speed in _with_data(group, found[key], trials):
            works.append(work)
            timed.append(speed.seconds(work))
    known = [work for work in works if work is not None]
    return Estimate(
        client_steps=sum(work.client_steps for work in known),
        seconds=sum(timed) if timed or not runs else None,
        exact=all(work.exact for work in known),
        unknown=len(works) - len(known),
        absent=absent,
        runs=len(runs),
        untimed=len(runs) - len(timed),
        trials=len(trials.done),
        device=find_device(runs[0][0].general.device).type if runs else "cpu",
    )


def _request(config: RunConfig) -> str:
    """What data a run asks for."""
    return repr((config.dataset.name, config.dataset.knobs))


@dataclass(frozen=True)
class _Trials:
    """Timed trials, one for each method, model, shape of a sample, cohort and engine, whatever the knobs."""

    tell: Tell
    on_trial: Tell
    done: dict[str, tuple[Speed, bool]] = field(default_factory=dict)

    def of(self, config: RunConfig, dataset: Dataset) -> tuple[Speed, bool]:
        general, federation, shape = config.general, config.federation, dataset.input_shape
        sizes = (shape, len(dataset.test), config.local.batch_size, federation.clients_per_round)
        key = repr((config.method.name, config.table()["model"], sizes, general.device, general.engine))
        if key not in self.done:
            inputs = "×".join(map(str, shape))
            self.on_trial(f"timing {config.method.name}, {config.model.name}, inputs {inputs}")
            self.done[key] = probe(config, dataset)
        return self.done[key]


def _with_data(runs: Sequence[tuple[RunConfig, int]], dataset: Dataset, trials: _Trials) -> list[tuple[Work, Speed]]:
    """Work and speed of runs on one data set; splits and trials are shared between runs that agree in them."""
    splits: dict[str, Parts] = {}
    found: list[tuple[Work, Speed]] = []
    for config, done in runs:
        table = config.table()
        split_key = repr(
            (
                table["partition"],
                table["dataset"],
                table["federation"]["num_clients"],
                config.evaluation.on,
                config.split_seed,
            )
        )
        if split_key not in splits:
            trials.tell(f"splitting {config.dataset.name} with {config.partition.name}, seed {config.split_seed}")
            splits[split_key] = training_split(config, dataset)
        speed, skips = trials.of(config, dataset)
        found.append((count_work(config, splits[split_key], skip_singletons=skips, first_round=done), speed))
    return found


def duration(seconds: float) -> str:
    """A time in the unit a person would use."""
    for unit, size in (("days", _DAY), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 1.5 * size:
            count = seconds / size
            return f"{count:,.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 1.5 else "a second"
