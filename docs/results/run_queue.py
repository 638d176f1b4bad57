"""Do the runs of the second study that are missing: `python docs/results/run_queue.py --device cuda`.

The steps are done in their order, each by `fedblade reproduce`. Runs that this folder keeps in `queue` are copied to
OUT/cells first, so that they are not done again. The command can be stopped at any time and given again.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedblade.results import RunDirectory
from fedblade.studies import plan_reproduction

HERE = Path(__file__).parent
KEPT = HERE / "queue"


@dataclass(frozen=True)
class Step:
    """Some cells of a grid. With `jpeg`, pictures are read from the folder of `--jpeg`."""

    letter: str
    words: str
    source: str
    where: tuple[str, ...] = ()
    jpeg: bool = False

    @property
    def grid(self) -> str:
        """The grid, wherever the command is given."""
        return str(HERE / self.source) if ".toml" in self.source else self.source

    def command(self, grid: str, out: Path, device: str) -> list[str]:
        """The arguments of `fedblade` that do the step."""
        chosen = [word for choice in self.where for word in ("--where", choice)]
        return ["reproduce", grid, *chosen, "--device", device, "--engine", "stacked", "--out", str(out)]


STEPS = (
    Step("a", "Table 7: all of 20 clients in every round", "full_participation.toml:strong"),
    Step("a", "the comparison with JPEG pictures", "comparison.toml:strong", jpeg=True),
    Step("b", "Table 1, CIFAR-10, α = 0.05", "queue.toml:b"),
    Step("c", "Table 1, CIFAR-10, α = 0.5", "queue.toml:c"),
    Step("d", "the weight of LDDecorr", "queue.toml:d"),
    Step("e", "Tiny-ImageNet, α = 0.05", "queue.toml:e"),
    Step("f", "FedETF, Table 1", "fe-t1", ("dataset=cifar10", "method=fedavg", "method=fedetf")),
    Step(
        "f", "FedDecorr, Table 1", "fd-t1",
        ("dataset=cifar10", "level=0.05", "method=fedavg", "method=fedavg+feddecorr"),
    ),
    Step("f", "FedGELA, Table 2", "fg-t2", ("dataset=cifar10", "clients=10", "method=fedavg", "method=fedgela")),
    Step(
        "f", "FedDr+, Table 3", "fr-t3",
        ("dataset=cifar10", "partition=shards", "block=released", "method=fedavg", "method=feddr_plus"),
    ),
    Step("g", "FedBlade without one of its parts", "queue.toml:g"),
    Step("h", "the rest of Table 1", "queue.toml:h"),
)  # fmt: skip


def folder_of(step: Step, out: Path) -> Path:
    """Where the results of a step are: runs on other pictures have the same names, so they are kept apart."""
    return out / "jpeg" if step.jpeg else out


def is_finished(folder: Path) -> bool:
    """Whether there is a finished run in the folder."""
    return folder.is_dir() and RunDirectory(folder).finished_summary() is not None


def list_runs(step: Step, out: Path) -> tuple[int, int]:
    """Print the runs of a step, and return how many are finished and how many there are."""
    runs = plan_reproduction(step.grid, where=step.where, out=folder_of(step, out)).runs
    done = [is_finished(run.folder) or (not step.jpeg and is_finished(KEPT / run.folder.name)) for run in runs]
    print(f"{step.letter}  {step.words}: {sum(done)} of {len(runs)} runs finished")
    for run, finished in zip(runs, done, strict=True):
        print(f"   {'finished' if finished else 'to do   '}  {run.label}")
    return sum(done), len(runs)


def copy_kept(out: Path) -> None:
    """Put the kept runs where `fedblade reproduce` looks for finished ones."""
    for folder in sorted(KEPT.glob("*-seed*")):
        if not (out / "cells" / folder.name).exists():
            shutil.copytree(folder, out / "cells" / folder.name)


def do_step(step: Step, out: Path, device: str, jpeg: Path | None) -> bool:
    """Do the missing runs of a step; false if some did not finish, or if the pictures of the step are not given."""
    if step.jpeg and jpeg is None:
        print(f"{step.letter}  {step.words}: left out, because --jpeg names no folder")
        return True
    print(f"{step.letter}  {step.words}", flush=True)
    found = {"FEDBLADE_DATA": str(jpeg.resolve())} if step.jpeg and jpeg is not None else {}
    command = [sys.executable, "-m", "fedblade", *step.command(step.grid, folder_of(step, out), device)]
    return subprocess.run(command, env=os.environ | found, check=False).returncode == 0  # noqa: S603


def chosen_steps(letters: str) -> Sequence[Step]:
    """The steps with one of these letters; all of them without letters."""
    known = sorted({step.letter for step in STEPS})
    if unknown := sorted(set(letters) - set(known)):
        sys.exit(f"there is no step '{unknown[0]}'; expected some of {''.join(known)}, such as --steps abc.")
    return [step for step in STEPS if not letters or step.letter in letters]


def main() -> None:
    """Read the options; list the runs, or do them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda", help="where to train: cuda, cuda:N or cpu")
    options.add_argument("--out", type=Path, default=Path("runs/queue"), help="folder of the results")
    options.add_argument("--steps", default="", help="letters of steps, such as abc; all if left out")
    options.add_argument("--jpeg", type=Path, help="folder with cifar10 as JPEG pictures, for the second step of a")
    options.add_argument("--dry-run", action="store_true", help="list the runs and stop")
    given = options.parse_args()
    steps = chosen_steps(given.steps)
    if given.dry_run:
        counts = [list_runs(step, given.out) for step in steps]
        print(f"{sum(done for done, _ in counts)} of {sum(runs for _, runs in counts)} runs finished")
        return
    copy_kept(given.out)
    failed = [step.words for step in steps if not do_step(step, given.out, given.device, given.jpeg)]
    if failed:
        sys.exit(f"runs of these steps did not finish: {'; '.join(failed)}. Give the command again to go on.")


if __name__ == "__main__":
    main()
