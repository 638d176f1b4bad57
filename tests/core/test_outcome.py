from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from fedblade.core.errors import NonFinite
from fedblade.core.outcome import StepLog, train_client
from fedblade.core.terms import Term, TermValue
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from support.small_federation import BATCH_NORM, build, tasks


def test_logs_add_counts_and_average_the_rest():
    a = StepLog({"loss": 3.0, "count_x": 1.0}, {"loss": 2, "count_x": 0})
    b = StepLog({"loss": 5.0, "other": 4.0}, {"loss": 2, "other": 4})
    assert (a + b).means() == {"loss": 2.0, "count_x": 1, "other": 1.0}
    assert isinstance((a + b).means()["count_x"], int)
    assert a + b == b + a
    assert (StepLog() + a).means() == a.means()


def test_the_mean_is_over_steps_not_over_clients():
    setup = build()
    results = [train_client(setup.problem, setup.start, task, None, 0.05) for task in tasks(setup)]
    total = results[0].log + results[1].log
    steps = [task.num_steps for task in tasks(setup)[:2]]
    means = [r.log.means()["loss_supervised"] for r in results[:2]]
    assert steps[0] != steps[1]
    expected = (means[0] * steps[0] + means[1] * steps[1]) / sum(steps)
    assert total.means()["loss_supervised"] == pytest.approx(expected, rel=1e-14)


def test_a_client_without_a_step_sends_and_keeps_nothing_new():
    setup = build(**{"local.last_batch": "drop", "local.batch_size": 40})
    idle = tasks(setup)[0]
    before = {"mine": {"a": torch.ones(1)}}
    result = train_client(setup.problem, setup.start, idle, before, 0.05)
    assert idle.num_steps == 0
    assert result.sums is None
    assert result.bytes_up == 0
    assert result.state is before
    assert result.log.means() == {"count_skipped_singletons": 0, "count_idle_clients": 1}


def test_skipped_singletons_are_counted():
    setup = build(**BATCH_NORM, **{"local.batch_size": 51})
    task = tasks(setup)[1]
    assert train_client(setup.problem, setup.start, task, None, 0.05).log.means()["count_skipped_singletons"] == 2


@dataclass(frozen=True, kw_only=True)
class Breaks(Term):
    """Becomes NaN at the third step of a client."""

    name: ClassVar[str] = "breaks"
    seen: list

    def __call__(self, view):
        self.seen.append(1)
        return TermValue(view.features.sum() * 0 + (float("nan") if len(self.seen) >= 3 else 0.0))


def test_a_loss_that_breaks_names_term_client_round_and_first_step():
    setup = build(replace(fedavg(), losses=(CrossEntropy(), Breaks(seen=[]))))
    with pytest.raises(NonFinite, match=r"term 'breaks' .*client 2 in round 1, local step 3 of 12"):
        train_client(setup.problem, setup.start, tasks(setup)[2], None, 0.05)


def test_a_rate_that_explodes_stops_the_client():
    setup = build()
    with pytest.raises(NonFinite, match="client 1"):
        train_client(setup.problem, setup.start, tasks(setup)[1], None, 1e200)
