"""What shares send, put together as if one process had trained everyone; ranks are threads here."""

from functools import reduce

import pytest
import torch

from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums
from fedblade.core.errors import Misconfigured, NonFinite, RunFailed
from fedblade.core.outcome import StepLog
from fedblade.core.sums import Sum, Sums
from fedblade.engines.base import RoundOutcome
from fedblade.engines.ranks import describe_error, raise_described_error
from fedblade.engines.ranks._bytes import decoded, encoded
from fedblade.engines.ranks._outcomes import add_by_client, add_over_ranks, merged_facts
from support.thread_ranks import on_ranks

CPU = torch.device("cpu")
DECLARED = (
    Sum("delta", lambda _: {}, 1.0),
    Sum("steps", lambda _: {}, 1.0, reduce="max"),
    Sum("rows", lambda _: {}, 1.0, reduce="each"),
    Sum("nothing", lambda _: {}, 1.0),
)
WATCH = DiagnosticRequest((Sum("seen", lambda _: {}, 1.0),), (Sum("alone", lambda _: {}, 1.0),), None, None)


def outcome(client, *, first=False):
    """What one client sends."""
    # Ranks are threads here, and torch's global generator is shared by all threads.
    row = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(client))
    trees = {
        "delta": {"w": row, "b": row[0, 0]},
        "steps": {"n": row.abs().sum()},
        "rows": {"r": row[None]},
        "nothing": {},
    }
    kinds = {each.name: each.reduce for each in DECLARED}
    seen = Sums({"seen": {"s": row.sum()}}, {"seen": "sum"})
    alone = Sums({"alone": {"a": row[1]}}, {"alone": "sum"}) if first else Sums()
    log = StepLog({"loss_ce": float(row.sum()), "count_idle_clients": 0.0}, {"loss_ce": 3, "count_idle_clients": 0})
    return RoundOutcome(Sums(trees, kinds), log, 10 + client, DiagnosticSums(seen, alone, float(client)))


def whole(clients):
    return reduce(RoundOutcome.__add__, (outcome(c, first=c == min(clients)) for c in clients), RoundOutcome())


def assert_same(found, expected, tolerance):
    for part in ("sums", "every", "first"):
        mine, theirs = (each.sums if part == "sums" else getattr(each.observed, part) for each in (found, expected))
        assert mine.trees.keys() == theirs.trees.keys()
        assert mine.reduce == theirs.reduce
        for name, tree in theirs.trees.items():
            assert mine[name].keys() == tree.keys()
            for leaf in tree:
                torch.testing.assert_close(mine[name][leaf], tree[leaf], rtol=tolerance, atol=tolerance)
    assert found.bytes_up == expected.bytes_up
    assert found.log.steps == expected.log.steps
    assert found.log.totals == pytest.approx(expected.log.totals, abs=tolerance)


SHARES = [[[2, 5], [1, 9]], [[], [4, 7, 8]], [[3], [], [1, 2]], [[], []]]


@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_sums_maxima_and_rows_are_those_of_one_process(shares):
    clients = sorted(client for share in shares for client in share)

    def work(ranks):
        mine = shares[ranks.rank]
        share = reduce(RoundOutcome.__add__, (outcome(c, first=c == min(clients)) for c in mine), RoundOutcome())
        return add_over_ranks(ranks, share, mine, DECLARED, WATCH, CPU)

    found = on_ranks(work, len(shares))
    assert_same(found[0], whole(clients), 1e-14)
    assert all(each == RoundOutcome() for each in found[1:])
    assert found[0].observed.seconds == max(sum(share) for share in shares), "ranks observe at the same time"


@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_one_by_one_has_the_very_bits(shares):
    clients = sorted(client for share in shares for client in share)

    def work(ranks):
        mine = {client: outcome(client, first=client == min(clients)) for client in shares[ranks.rank]}
        return add_by_client(ranks, mine, shares, DECLARED, WATCH, CPU)

    found = on_ranks(work, len(shares))
    assert_same(found[0], whole(clients), 0.0)
    assert all(each == RoundOutcome() for each in found[1:])


@pytest.mark.parametrize("how", [add_over_ranks, add_by_client])
def test_an_error_of_one_rank_is_raised_on_all(how):
    broken = NonFinite("client 3 produced a non-finite sum")

    def work(ranks):
        mine = broken if ranks.rank == 1 else ({} if how is add_by_client else RoundOutcome())
        return how(ranks, mine, [[], [3], []], DECLARED, None, CPU)

    found = on_ranks(work, 3)
    assert found[1] is broken
    assert [type(each) for each in found] == [NonFinite] * 3
    assert str(found[0]) == "rank 1: client 3 produced a non-finite sum"


def test_a_bug_elsewhere_is_a_failed_run_with_its_traceback():
    try:
        {}["gone"]
    except KeyError as error:
        told = decoded(encoded(describe_error(error)))
    with pytest.raises(RunFailed, match="rank 2: unexpected KeyError: 'gone'") as raised:
        raise_described_error(2, told["error"])
    assert "test_sums_over_ranks.py" in raised.value.__notes__[0]


def test_a_users_mistake_stays_one():
    with pytest.raises(Misconfigured, match="no such file"):
        raise_described_error(None, describe_error(Misconfigured("no such file"))["error"])


def test_facts_of_idle_ranks_change_nothing():
    idle = {"sent": {"sums": [], "every": [], "first": []}, "totals": {}, "steps": {}, "bytes_up": 0, "seconds": 0.0}
    busy = {"sent": {"sums": ["a"], "every": [], "first": []}, "totals": {"x": 2.0}, "steps": {"x": 4}, "bytes_up": 8,
            "seconds": 1.5}  # fmt: skip
    assert merged_facts([idle, busy, idle]) == busy
