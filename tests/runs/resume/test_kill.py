"""Runs that are killed without warning go on to the very same result."""

import random
import signal

import pytest

from fedblade.core.registry import methods, regularisers
from support.stored_states import state_files

pytestmark = pytest.mark.thorough

KILLED = -signal.SIGKILL


def finish(job, folder):
    child = job.start(folder)
    out, err = child.communicate(timeout=120)
    assert (child.returncode, err) == (0, "")
    assert out.splitlines()[-1] == str(folder)


def test_kills_from_the_first_moment_on_change_nothing(job, kill, undisturbed, outcome_of, tmp_path):
    rng = random.Random(20240)
    mine, folder = job(method="fedblade"), tmp_path / "run"
    moments = [(0, 0.0), (0, rng.uniform(0.3, 1.5)), (1, 0.0), (rng.randint(1, 9), rng.uniform(0, 0.1))]
    statuses = [kill(mine.start(folder), folder, rounds, delay) for rounds, delay in moments]
    assert statuses == [KILLED] * 4
    finish(mine, folder)
    assert outcome_of(folder) == undisturbed(mine)


@pytest.mark.parametrize("every", [3])
def test_client_state_on_disk_survives_kills(job, kill, undisturbed, outcome_of, tmp_path, methods_of_mine, every):
    """SCAFFOLD's controls live in files; with checkpoints every third round some of them are ahead of the state."""
    rng = random.Random(7)
    changes = {"method": methods_of_mine["scaffold"], "momentum": 0.0, "checkpoint.every": every}
    mine, folder = job(**changes), tmp_path / "run"
    for _ in range(2):
        assert kill(mine.start(folder), folder, rng.randint(4, 9), rng.uniform(0, 0.05)) == KILLED
    assert state_files(folder)
    finish(mine, folder)
    assert outcome_of(folder) == undisturbed(mine)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scaffold", "fedblade"])
def test_twenty_random_kills_in_a_row_change_nothing(
    job, kill, undisturbed, outcome_of, tmp_path, methods_of_mine, name
):
    rng = random.Random(99)
    changes = {"method": methods_of_mine.get(name, name), "momentum": 0.0, "checkpoint.every": 2, "rounds": 400}
    mine, folder = job(**changes), tmp_path / "run"
    for number in range(20):
        rounds, delay = (0, rng.uniform(0, 2.5)) if number % 4 == 0 else (rng.randint(1, 12), rng.uniform(0, 0.2))
        assert kill(mine.start(folder), folder, rounds, delay) == KILLED
    finish(mine, folder)
    assert outcome_of(folder) == undisturbed(mine)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [*methods.names(), *(f"fedavg+{name}" for name in regularisers.names()), "fedetf-ft"]
)
def test_a_kill_in_the_middle_of_any_method_changes_nothing(job, kill, undisturbed, outcome_of, tmp_path, method):
    rng = random.Random(method)
    mine, folder = job(method=method, rounds=12, **{"checkpoint.every": 2}), tmp_path / "run"
    assert kill(mine.start(folder), folder, rng.randint(2, 8), rng.uniform(0, 0.05)) == KILLED
    finish(mine, folder)
    assert outcome_of(folder) == undisturbed(mine)
