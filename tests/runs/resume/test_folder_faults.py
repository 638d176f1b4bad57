"""Every file of a run folder is edited, removed, swapped, cut off and flipped: no result changes without a word.

What each fault leads to is a table in docs/reference-run-folder.md, which these tests read.
"""

import os
import random
import shutil

import pytest

import fedblade
from fedblade.core.errors import FedbladeError
from fedblade.runs import RunListener
from support.commands import Zygote
from support.fault_campaign import (
    FEWER,
    FINISHED,
    MOMENTS,
    OUTCOMES,
    REFUSED,
    RUNNING,
    SAME,
    SETTINGS,
    STATEFUL,
    STOPPED,
    Answer,
    Campaign,
    Case,
    suffer,
    trouble_of,
)
from support.folder_faults import EARLIER, IMPOSSIBLE, NEWEST, RUN_FOLDER, STATES, Sources, inflict, read_tables

SEED = os.environ.get("FEDBLADE_FAULT_SEED", "")
"""The seed of the campaign, or SEED/N for case N alone; without it a new one is drawn and printed."""
FAULTS_EACH = 100
AFTER = 9
"""The round after which the run of the fixed cases is stopped, with checkpoints of rounds 6 and 8."""

FIXED = [
    Case("history.jsonl", "edited", STOPPED, "1"),
    Case("history.jsonl", "of another run", RUNNING, "2"),
    Case("config.toml", "removed", STOPPED, "3"),
    Case("folder.json", "of another run", STOPPED, "4"),
    Case("folder.json", "older copy", FINISHED, "13"),
    Case("metrics.json", "bit flipped", FINISHED, "14"),
    Case("partition.json", "cut off", RUNNING, "5"),
    Case("diagnostics.jsonl", "removed", STOPPED, "6"),
    Case("checkpoints/journal.jsonl", "older copy", STOPPED, "7"),
    Case(NEWEST, "bit flipped", STOPPED, "8"),
    Case("checkpoints/best.safetensors", "older copy", STOPPED, "9"),
    Case("checkpoints/clients/", "removed", STOPPED, "10"),
    Case("model.safetensors", "of another run", FINISHED, "11"),
    Case("summary.json", "edited", FINISHED, "12"),
]
"""A case for each rule of the table; they run without processes."""


class Do(RunListener):
    """Does something after a round."""

    def __init__(self, act):
        self.act = act

    def on_round(self, record):
        if record["round"] == AFTER:
            self.act()


def stop():
    raise KeyboardInterrupt


def train(folder, act=lambda: None, resume=False, **changes):
    """A run here, with the answer that the command line would give."""
    try:
        settings = SETTINGS | {"method": STATEFUL} | changes
        fedblade.run("quickstart", out=folder, resume=resume, listener=Do(act), **settings)
    except FedbladeError as error:
        return Answer(error.exit_status, "", f"error: {error}\n")
    return Answer(0, "", "")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A whole run, the runs that files are swapped with, and a run that was stopped."""
    place = tmp_path_factory.mktemp("faults")
    train(place / "whole")
    train(place / "other", seed=5)
    train(place / "older", rounds=FEWER)
    with pytest.raises(KeyboardInterrupt):
        train(place / "stopped", stop)
    return place


def fixed_failure(case, place, folder):
    """Carry out a fixed case here; what is wrong with its end, or None."""
    sources, whole, promise = (
        Sources(place / "other", place / "older"),
        place / "whole",
        read_tables()[case.row][case.fault],
    )
    if case.moment != RUNNING:
        shutil.copytree(place / ("stopped" if case.moment == STOPPED else "whole"), folder)
        return suffer(case, folder, whole, sources, promise, lambda path: train(path, resume=True))
    answer = train(folder, lambda: inflict(case.fault, case.row, folder, sources, random.Random(case.seed)))
    return trouble_of(folder, whole, promise, answer)


def test_fixed_faults_end_as_the_page_says(place, tmp_path):
    wrong = [f"{case}: {failure}" for case in FIXED if (failure := fixed_failure(case, place, tmp_path / case.seed))]
    assert not wrong, "\n".join(wrong)


def test_the_page_has_a_row_for_every_file_and_an_outcome_for_every_fault(place):
    tables = read_tables()
    assert {cell for row in tables.values() for cell in row.values()} <= {*OUTCOMES, IMPOSSIBLE}
    files = {str(path.relative_to(place / "whole")) for path in (place / "whole").rglob("*") if path.is_file()}
    kinds = {STATES if name.endswith(".states") else NEWEST if "round-" in name else name for name in files}
    assert kinds == {row for row in tables if not row.endswith("/")} - {EARLIER, RUN_FOLDER}


def test_the_judge_of_the_cases_is_not_deaf(place, tmp_path):
    done = Answer(0, "", "")
    for change in (lambda text: text.replace(b'"round": 4', b'"round": 5'), lambda text: text[:-1]):
        shutil.copytree(place / "whole", tmp_path / "run", dirs_exist_ok=True)
        history = tmp_path / "run" / "history.jsonl"
        history.write_bytes(change(history.read_bytes().rstrip()))
        assert "history.jsonl differ" in trouble_of(tmp_path / "run", place / "whole", REFUSED, done)
    refused = Answer(1, "", "error: unexpected KeyError: 'round'. This is a bug; --debug shows where.\n")
    assert "resumed" in trouble_of(place / "whole", place / "whole", REFUSED, refused)
    assert "refused" in trouble_of(place / "whole", place / "whole", SAME, Answer(1, "", "error: no\n"))
    assert trouble_of(place / "whole", place / "whole", SAME, done) is None


def drawn_cases(seed: str, *, is_stateful: bool) -> list[Case]:
    """Every possible fault of every file once, then more of them, each at a moment of its own."""
    rng = random.Random(seed)
    possible = [
        (row, fault)
        for row, cells in read_tables().items()
        for fault, cell in cells.items()
        if cell != IMPOSSIBLE and (is_stateful or "clients/" not in row)
    ]
    rng.shuffle(possible)
    chosen = possible + [rng.choice(possible) for _ in range(FAULTS_EACH - len(possible))]
    return [
        Case(row, fault, RUNNING if row == RUN_FOLDER else rng.choice(MOMENTS), f"{seed}/{number}")
        for number, (row, fault) in enumerate(chosen)
    ]


@pytest.fixture
def zygote():
    process = Zygote()
    yield process
    process.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", STATEFUL])
def test_a_hundred_faults_change_no_result(zygote, tmp_path, method, record_property):
    seed, _, only = SEED.partition("/")
    seed = seed or str(random.SystemRandom().randrange(10**6))
    record_property("seed", f"FEDBLADE_FAULT_SEED={seed} for {method}")
    campaign, promises, wrong = Campaign(zygote, tmp_path, method), read_tables(), []
    for case in drawn_cases(seed, is_stateful=method == STATEFUL):
        if not only or case.seed == f"{seed}/{only}":
            failure = campaign.failure(case, promises[case.row][case.fault])
            wrong += [f"{case}: {failure}"] if failure else []
    assert not wrong, "\n".join([f"{len(wrong)} cases failed; FEDBLADE_FAULT_SEED=SEED/N repeats one", *wrong])
