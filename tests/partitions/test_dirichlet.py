"""The capped Dirichlet split against a slow reference, its retry and its fallback."""

import math
import re
import warnings
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.partitions import IID, Dirichlet, Request, _dirichlet, _search
from fedblade.partitions._search import capped_shares

CIFAR = np.repeat(np.arange(10), 5000)
# One class of 19, one of 1: two clients of 10 need the large class cut in half, which Dir(1e-6) does not do.
HOPELESS = np.array([0] * 19 + [1])


def slow_table(q, class_sizes, cap):
    """Counts [C, K] from proportions q [C, K]: sample by sample, in exact fractions."""
    num_clients, num_samples = q.shape[1], sum(class_sizes)
    held = [0] * num_clients
    table = []
    for row, amount in zip(q, class_sizes, strict=True):
        share = [Fraction(float(value)) for value in row]
        if cap:
            share = [
                0 if Fraction(held[j]) >= Fraction(num_samples, num_clients) else share[j] for j in range(num_clients)
            ]
        counts = [0] * num_clients
        for position in range(amount):
            owner = 0
            while int(sum(share[: owner + 1]) / sum(share) * amount) <= position:
                owner += 1
            counts[owner] += 1
        held = [a + b for a, b in zip(held, counts, strict=True)]
        table.append(counts)
    return np.array(table)


@pytest.mark.parametrize("cap", [True, False])
@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_shares_match_the_slow_reference(cap, alpha):
    generator = np.random.default_rng(0)
    class_sizes = np.array([13, 40, 7, 22])
    q = generator.dirichlet(np.full(6, alpha), size=(8, 4))
    shares, sizes = capped_shares(np.log(q), class_sizes, cap)
    assert shares.sum(axis=2) == pytest.approx(1)
    for draw in range(8):
        assert sizes[draw].tolist() == slow_table(q[draw], class_sizes.tolist(), cap).sum(axis=0).tolist()


@pytest.mark.parametrize("cap", [True, False])
def test_split_matches_the_slow_reference(cap):
    labels = np.random.default_rng(1).integers(0, 5, 150)
    partitioner = Dirichlet(0.7, cap=cap, min_size=0, allow_empty=True)
    for seed in range(5):
        request = Request(labels, 5, 7, seed, None)
        weights = np.exp(next(partitioner._search(request).batches())[0])
        expected = slow_table(weights / weights.sum(axis=1, keepdims=True), np.bincount(labels).tolist(), cap)
        assert (partitioner.split(labels, 7, seed).table() == expected.T).all()


@pytest.mark.parametrize("alpha", [0.3, 4.0])
def test_uncapped_shares_have_the_moments_of_the_dirichlet(alpha):
    clients = 5
    request = Request(np.arange(40) % 40, 40, clients, 0, None)
    batches = Dirichlet(alpha)._search(request).batches()
    shares = np.concatenate([capped_shares(next(batches), np.ones(40, int), cap=False)[0] for _ in range(12)])
    flat = shares.reshape(-1, clients)
    assert len(flat) > 40_000
    assert flat.mean(axis=0) == pytest.approx(np.full(clients, 1 / clients), abs=0.01)
    variance = (clients - 1) / clients**2 / (clients * alpha + 1)
    assert flat.var(axis=0) == pytest.approx(np.full(clients, variance), rel=0.05)


def test_the_cap_shuts_full_clients_out():
    for seed in range(5):
        table = Dirichlet(0.1, min_size=0, allow_empty=True).split(CIFAR, 20, seed).table()
        before = np.cumsum(table, axis=1) - table
        assert (table[before * 20 >= len(CIFAR)] == 0).all()
    free = Dirichlet(0.1, cap=False, min_size=0, allow_empty=True).split(CIFAR, 20, 0).table()
    before = np.cumsum(free, axis=1) - free
    assert (free[before * 20 >= len(CIFAR)] > 0).any()


def test_a_client_at_exactly_the_mean_is_full():
    q = np.array([[1.0, 0.0, 0.0], [0.9, 0.05, 0.05], [0.4, 0.3, 0.3]])
    with np.errstate(divide="ignore"):
        shares, sizes = capped_shares(np.log(q)[None], np.array([10, 10, 10]), cap=True)
    assert shares[0, 1] == pytest.approx([0, 0.5, 0.5])
    assert sizes.tolist() == [[10, 10, 10]]


def test_leftover_mass_too_small_for_a_float_is_still_shared_out():
    weights = np.array([[[0.0, -1e5, -2e5], [0.0, -1e5, -2e5], [0.0, -1e5, -2e5]]])
    shares, sizes = capped_shares(weights, np.array([10, 10, 1]), cap=True)
    assert shares[0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert sizes.tolist() == [[10, 10, 1]]


@pytest.mark.parametrize("alpha", [1e-99, 1e-3, 1e12])
def test_extreme_concentrations_stay_exhaustive(alpha):
    split = Dirichlet(alpha, min_size=0, allow_empty=True).split(CIFAR, 30, 0)
    assert (np.sort(split.order) == np.arange(len(CIFAR))).all()
    assert np.isfinite(split.shares).all()


def test_a_class_without_training_samples_still_has_shares():
    split = Dirichlet(0.5, min_size=1).split(np.arange(100) % 4, 5, 0, num_classes=6)
    assert split.shares.sum(axis=0) == pytest.approx(np.ones(6))
    assert split.table()[:, 4:].sum() == 0


def test_an_absent_class_has_shares_even_when_every_client_is_full():
    split = Dirichlet(1e-6).split(np.arange(20) % 2, 2, 0, num_classes=3)
    assert split.sizes().tolist() == [10, 10]
    assert split.shares[:, 2].sum() == pytest.approx(1)


def test_large_alpha_is_close_to_iid():
    table = Dirichlet(1e6).split(CIFAR, 50, 0).table()
    assert abs(table - 100).max() <= 2
    assert abs(table - IID().split(CIFAR, 50, 0).table()).max() < 60


def test_smaller_alpha_is_more_skewed():
    def classes_held(alpha):
        return (Dirichlet(alpha).split(CIFAR, 20, 0).table() > 50).sum(axis=1).mean()

    assert classes_held(0.1) < 4 < classes_held(0.5) < 8 < classes_held(10.0)


def first_acceptable(partitioner, labels, clients, seed, min_size):
    """Number of the first draw, from 1, that reaches `min_size`, found one draw at a time."""
    request = Request(labels, labels.max() + 1, clients, seed, None)
    number = 0
    for batch in partitioner._search(request).batches():
        for weights in batch:
            number += 1
            if capped_shares(weights[None], np.bincount(labels), partitioner.cap)[1].min() >= min_size:
                return number
    raise AssertionError


def test_retry_takes_the_first_draw_that_is_large_enough_and_counts():
    labels = np.repeat(np.arange(5), 60)
    taken = []
    for seed in range(6):
        partitioner = Dirichlet(0.1, min_size=8)
        split = partitioner.split(labels, 12, seed)
        assert split.sizes().min() >= 8
        assert split.draws == first_acceptable(partitioner, labels, 12, seed, 8)
        taken.append(split.draws)
    assert max(taken) > 1
    assert Dirichlet(0.1, min_size=0, allow_empty=True).split(labels, 12, 0).draws == 1


def test_without_retry_an_empty_client_is_refused_or_allowed():
    labels = np.repeat(np.arange(2), 50)
    knobs = {"alpha": 0.01, "cap": False, "min_size": 0}
    with pytest.raises(Misconfigured, match=r"of 10 clients got no samples \(first: client \d\).*allow_empty=true"):
        Dirichlet(**knobs).split(labels, 10, 0)
    split = Dirichlet(**knobs, allow_empty=True).split(labels, 10, 0)
    assert (split.sizes() == 0).any()
    assert split.sizes().sum() == 100
    assert Dirichlet(**knobs, allow_empty=True).split(labels, 150, 0).num_clients == 150


def test_error_after_the_last_draw_says_what_was_tried(monkeypatch):
    monkeypatch.setattr(_dirichlet, "DRAW_LIMIT", 700)
    with pytest.raises(Misconfigured) as caught:
        Dirichlet(1e-6, cap=False).split(HOPELESS, 2, 0)
    text = str(caught.value)
    for fact in ("700 draws", "min_size=10", "alpha=1e-06", "num_clients=2", "20 samples", "the best left 1 to"):
        assert fact in text
    assert "min_size_fallback=true" in text
    assert "\n" not in text


def test_the_limit_is_a_million_draws_and_exact(monkeypatch):
    assert _dirichlet.DRAW_LIMIT == 10**6
    labels = np.repeat(np.arange(5), 60)
    seed = next(s for s in range(50) if Dirichlet(0.1, min_size=8).split(labels, 12, s).draws > 4)
    needed = Dirichlet(0.1, min_size=8).split(labels, 12, seed).draws
    monkeypatch.setattr(_dirichlet, "DRAW_LIMIT", needed)
    assert Dirichlet(0.1, min_size=8).split(labels, 12, seed).draws == needed
    monkeypatch.setattr(_dirichlet, "DRAW_LIMIT", needed - 1)
    with pytest.raises(Misconfigured, match=f"none of {needed - 1} draws"):
        Dirichlet(0.1, min_size=8).split(labels, 12, seed)


def test_fallback_gives_the_split_of_the_lower_minimum_with_a_warning(monkeypatch):
    labels = np.repeat(np.arange(5), 60)
    monkeypatch.setattr(_dirichlet, "FALLBACK_DRAW_LIMIT", 300)
    with pytest.warns(UserWarning, match="min_size=20 was out of reach at alpha=0.1; clients hold at least 10 samples"):
        lowered = Dirichlet(0.1, min_size=20, min_size_fallback=True).split(labels, 12, 0)
    plain = Dirichlet(0.1, min_size=10).split(labels, 12, 0)
    assert lowered.digest() == plain.digest()
    assert lowered.draws == plain.draws


def test_fallback_goes_down_to_one(monkeypatch):
    monkeypatch.setattr(_dirichlet, "FALLBACK_DRAW_LIMIT", 50)
    with pytest.warns(UserWarning, match="at least 1 samples"):
        split = Dirichlet(1e-6, cap=False, min_size_fallback=True).split(HOPELESS, 2, 0)
    assert split.sizes().min() == 1


def test_fallback_searches_on_for_a_last_level_not_yet_seen(monkeypatch):
    labels = np.repeat(np.arange(2), 50)
    needed = Dirichlet(0.01, cap=False, min_size=1).split(labels, 3, 0).draws
    assert needed > 2
    monkeypatch.setattr(_dirichlet, "FALLBACK_DRAW_LIMIT", 2)
    with pytest.warns(UserWarning, match="at least 1 samples"):
        split = Dirichlet(0.01, cap=False, min_size=10, min_size_fallback=True).split(labels, 3, 0)
    assert split.draws == needed


def test_fallback_skips_minimums_no_split_can_reach():
    labels = np.arange(60) % 3
    with pytest.warns(UserWarning, match="at least 5 samples"):
        split = Dirichlet(100.0, min_size_fallback=True).split(labels, 10, 0)
    assert split.sizes().min() >= 5


def test_fallback_is_silent_when_not_needed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split = Dirichlet(0.5, min_size_fallback=True).split(CIFAR, 20, 0)
    assert split.digest() == Dirichlet(0.5).split(CIFAR, 20, 0).digest()


def test_exhausted_fallback_does_not_recommend_itself(monkeypatch):
    monkeypatch.setattr(_dirichlet, "DRAW_LIMIT", 20)
    with pytest.raises(Misconfigured, match="gave every client 1 samples") as caught:
        Dirichlet(1e-6, cap=False, min_size_fallback=True).split(np.arange(100) % 2, 50, 0)
    assert "min_size_fallback=true" not in str(caught.value)


def test_an_impossible_minimum_is_refused_at_once():
    with pytest.raises(
        Misconfigured, match=re.escape("min_size=10 for num_clients=7 needs 70 samples, but there are 69")
    ):
        Dirichlet().split(np.arange(69) % 3, 7, 0)
    assert Dirichlet(1e-6).split(np.arange(20) % 2, 2, 0).sizes().tolist() == [10, 10]


def test_a_hopeless_search_is_given_up_early_and_says_so():
    with pytest.raises(Misconfigured, match="and more draws would hardly help") as caught:
        Dirichlet(0.01).split(np.repeat(np.arange(10), 50), 40, 0)
    assert int(re.search(r"none of (\d+) draws", str(caught.value)).group(1)) < 10_000


def test_few_clients_far_from_their_minimum_are_given_up_long_before_the_limit():
    """The odds of this search are about one success in a few million draws: not hopeless by the odds alone."""
    with pytest.raises(Misconfigured, match="and more draws would hardly help") as caught:
        Dirichlet(0.01, min_size=14).split(np.repeat(np.arange(10), 180), 20, 0)
    assert int(re.search(r"none of (\d+) draws", str(caught.value)).group(1)) < 70_000
    rare, likely = np.zeros((2, 21), dtype=np.int64)
    rare[:8] = [0, 0, 5, 119, 944, 5633, 21403, 53484]
    likely[:8] = [0, 35, 401, 2462, 10213, 29696, 56641, 73547]
    none = np.zeros((0, 20), dtype=np.int64)
    for short, best, done, given_up in (
        (rare, 7, 2**16, True),
        (rare, 8, 2**16, False),
        (rare, 7, 2**16 - 1, False),
        (likely, 0, 2**16, False),
    ):
        assert _search._Progress(14, 10**6, short.copy()).is_hopeless(done, best, none) is given_up


def test_a_long_search_tells_that_it_goes_on(monkeypatch, caplog):
    monkeypatch.setattr(_search, "time", SimpleNamespace(monotonic=lambda: math.inf))
    labels = np.repeat(np.arange(5), 60)
    monkeypatch.setattr(_dirichlet, "DRAW_LIMIT", 2)
    with pytest.raises(Misconfigured, match="none of 2 draws"):
        Dirichlet(0.01).split(labels, 12, 0)
    assert re.search(r"none of 1 draws gave every client 10 samples.*at most 2 draws are made", caplog.text)


def test_the_odds_of_a_search_are_known_from_a_thousand_draws():
    """Settings whose chance was counted, even where it is too small to be seen among the draws looked at."""
    for alpha, min_size, chance in ((0.05, 15, 5e-5), (0.05, 10, 1e-3), (0.03, 8, 1e-4)):
        search = Dirichlet(alpha, cap=False)._search(Request(np.repeat(np.arange(10), 100), 10, 20, 0, None))
        batches = (capped_shares(weights, search.class_sizes, False)[1] for weights in search.batches())
        sizes = np.concatenate([next(batches) for _ in range(12)])
        short = np.bincount((sizes < min_size).sum(axis=1), minlength=21)
        assert math.log(chance / 2) < _search.log_odds(short) < math.log(20 * chance)
    assert _search.log_odds(np.array([0, 0, 0, 0, 1024])) < math.log(1e-6)
    assert _search.log_odds(np.array([40, 60])) == 0


def test_a_level_given_up_early_does_not_hide_the_levels_below(monkeypatch):
    """Too few draws were made to say what the best of all would have been."""
    monkeypatch.setattr(_dirichlet, "FALLBACK_DRAW_LIMIT", 20_000)
    labels = np.repeat(np.arange(10), 60)
    with pytest.warns(UserWarning, match="at least 5 samples"):
        lowered = Dirichlet(0.08, cap=False, min_size=20, min_size_fallback=True).split(labels, 30, 0)
    plain = Dirichlet(0.08, cap=False, min_size=5).split(labels, 30, 0)
    assert lowered.digest() == plain.digest()
    assert plain.draws > 2000


def test_the_hard_setting_of_the_paper_succeeds_after_many_draws():
    split = Dirichlet(0.05).split(CIFAR, 100, 0)
    assert split.sizes().min() >= 10
    assert split.draws > 100


@pytest.mark.slow
def test_the_hard_setting_succeeds_about_once_in_twenty_thousand_draws():
    draws = np.mean([Dirichlet(0.05).split(CIFAR, 100, seed).draws for seed in range(40)])
    assert 10_000 < draws < 40_000
