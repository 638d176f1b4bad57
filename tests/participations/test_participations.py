"""Who is chosen: laws of the choices that come with the library, and answers that are refused."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from support.cohorts import cohorts_of

FEW = np.array([1, 3, 4, 8, 9])


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 99), min_size=1, max_size=20), st.integers(0, 9), st.integers(1, 5), st.data())
def test_cohorts_are_prefixes_of_longer_runs(eligible, seed, rounds, data):
    size = data.draw(st.integers(1, len(eligible)))
    for part in ("uniform", "by_size"):
        short, long = (cohorts_of(part, sorted(eligible), size, rounds=r, seed=seed) for r in (rounds, rounds + 3))
        assert all(np.array_equal(a, b) for a, b in zip(short, long, strict=False))
        assert all(len(set(c)) == size and set(c) <= eligible and np.all(np.diff(c) > 0) for c in long)


def test_uniform_draws_every_client_about_as_often():
    cohorts = list(cohorts_of("uniform", FEW, 3, rounds=50))
    assert len({tuple(cohort) for cohort in cohorts}) > 5
    assert np.bincount(np.concatenate(cohorts), minlength=10)[FEW].min() > 15


def test_uniform_draws_what_it_always_drew():
    """Runs of before go on with the same cohorts."""
    drawn = [cohort.tolist() for cohort in cohorts_of("uniform", np.arange(20), 4, seed=7)]
    assert drawn == [[1, 8, 9, 16], [4, 7, 13, 16], [2, 7, 11, 12]]


def inclusion(sizes, number):
    """By hand: the probability that each client is among `number`, drawn one after another from those left."""
    found = np.zeros(len(sizes))
    for order in permutations(range(len(sizes)), number):
        probability, left = 1.0, float(sum(sizes))
        for client in order:
            probability *= sizes[client] / left
            left -= sizes[client]
        found[list(order)] += probability
    return found


def test_by_size_draws_in_proportion_to_samples():
    sizes = [0, 1, 0, 2, 4, 0, 0, 0, 6, 0]
    cohorts = list(cohorts_of("by_size", [1, 3, 4, 8], 2, sizes=sizes, rounds=6000))
    drawn = np.bincount(np.concatenate(cohorts), minlength=10)[[1, 3, 4, 8]] / 6000
    assert drawn == pytest.approx(inclusion([1, 2, 4, 6], 2), abs=0.02)


def test_by_size_leaves_clients_out_that_nobody_has_met():
    sizes = [5, 0, 5, 5]
    assert set(np.concatenate(list(cohorts_of("by_size", range(4), 2, sizes=sizes, rounds=40)))) == {0, 2, 3}
    with pytest.raises(Misconfigured, match="4 clients are to be drawn by size, but only 3"):
        cohorts_of("by_size", range(4), 4, sizes=sizes)[0]


def test_a_fixed_list_is_every_cohort_and_lists_take_turns():
    assert [c.tolist() for c in cohorts_of("fixed", FEW, 2, cohorts=[9, 1, 4])] == [[1, 4, 9]] * 3
    turns = cohorts_of("fixed", FEW, 2, cohorts=[[1, 3], [8]])
    assert [c.tolist() for c in turns] == [[1, 3], [8], [1, 3]]


def test_a_list_whose_turn_comes_late_is_checked_before_the_first_round():
    for cohorts, said in (
        ([[1, 3], [3, 5]], "for round 2 the ids 5"),
        ([[1], [3], [8, 8]], "for round 3 client 8 more"),
    ):
        with pytest.raises(Misconfigured, match=f"participation 'fixed' chose {said}"):
            cohorts_of("fixed", FEW, 2, cohorts=cohorts)[0]


def chosen_with(losses, per_round, **knobs):
    asked = []

    def ask(clients):
        asked.append(clients.tolist())
        return np.array([losses[client] for client in clients])

    cohort = cohorts_of("power_of_choice", range(len(losses)), per_round, **knobs).choose(0, ask)
    return asked, cohort.tolist()


def test_power_of_choice_takes_the_largest_losses_of_its_candidates():
    losses = [0.1, 5.0, 0.3, np.nan, 2.0, 2.0, 0.2, 0.4]
    (asked,), cohort = chosen_with(losses, 3, candidates=5)
    assert len(asked) == 5
    best = sorted(asked, key=lambda client: (-np.nan_to_num(losses[client], nan=-np.inf), client))[:3]
    assert cohort == sorted(best)
    (asked,), cohort = chosen_with(losses, 3, candidates=8)
    assert (asked, cohort) == (list(range(8)), [1, 4, 5])
    (asked,), _ = chosen_with(losses, 3)
    assert len(asked) == 6


@pytest.mark.parametrize("candidates", [1, 9])
def test_power_of_choice_refuses_a_number_of_candidates_that_cannot_be(candidates):
    with pytest.raises(Misconfigured, match=rf"candidates = {candidates} .* at least .* = 3 and at most 8"):
        chosen_with([1.0] * 8, 3, candidates=candidates)


def test_the_view_of_a_function_of_ones_own():
    seen = []

    def mine(view, first=0):
        seen.append((view.round, view.clients.tolist(), view.sizes.tolist(), view.per_round, first))
        return view.clients[view.losses([9, 1]).argsort()[::-1]] if first else [view.generator.choice(view.clients)]

    sizes = np.arange(10)
    cohorts = cohorts_of(mine, FEW, 2, sizes=sizes, first=0)
    assert [c.tolist() for c in cohorts] == [c.tolist() for c in cohorts]
    assert seen[0] == (0, FEW.tolist(), FEW.tolist(), 2, 0)

    asked = []

    def losses(clients):
        asked.append(clients.tolist())
        return clients * 1.0

    chosen = cohorts_of(lambda view: [1] if view.losses([9, 1]).tolist() == [9.0, 1.0] else [9], FEW, 2)
    assert chosen.choose(0, losses).tolist() == [1]
    assert asked == [[1, 9]]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([], "chose for round 1 no client"),
        ([3, 3, 4], "client 3 more than once"),
        ([3, 5, 77], "chose for round 1 the ids 5, 77, which cannot take part"),
        ([0.5], r"\[0.5\]; expected the ids of clients"),
        ([True, False], "expected the ids of clients"),
        ("ab", "expected the ids of clients"),
        (None, "None; expected the ids of clients"),
        ([[3], [4]], "expected the ids of clients"),
    ],
)
def test_a_bad_answer_is_refused_in_words(answer, said):
    with pytest.raises(Misconfigured, match=f"participation 'mine' .*{said}|{said}"):
        cohorts_of(lambda view: answer, FEW, 2)[0]


def test_good_answers_may_be_lists_sets_and_arrays_in_any_order():
    for answer in ([8, 1], {8, 1}, (8, 1), np.array([8, 1])):
        assert cohorts_of(lambda view, answer=answer: answer, FEW, 2)[0].tolist() == [1, 8]
