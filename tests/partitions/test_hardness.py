"""How hard a split is: closed forms, an independent slow reference, and what is said about it."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from fedblade import hardness as module
from fedblade.core.errors import Misconfigured
from fedblade.partitions import IID, MOST_DRAWN, Dirichlet, Drawn, Hardness, hardness

TEN = np.repeat(np.arange(10), 100)


def perplexity(counts):
    """exp(entropy) of positive counts, term by term."""
    total = sum(counts)
    return math.exp(-sum(n / total * math.log(n / total) for n in counts if n))


def slow(table, cohort):
    """Every number from its definition, with exact means over all cohorts there are."""
    rows = [row for row in table if sum(row)]
    classes = [c for c in range(len(table[0])) if sum(row[c] for row in rows)]
    total = sum(map(sum, rows))
    whole = [Fraction(sum(row[c] for row in rows), total) for c in classes]
    missing, distance, cohorts = 0, Fraction(0), list(itertools.combinations(rows, cohort))
    for chosen in cohorts:
        size = sum(map(sum, chosen))
        mix = [Fraction(sum(row[c] for row in chosen), size) for c in classes]
        missing += sum(share < min(Fraction(1, 100), own / 10) for share, own in zip(mix, whole, strict=True))
        distance += sum(abs(share - own) for share, own in zip(mix, whole, strict=True)) / 2
    return {
        "classes": len(classes),
        "effective_classes": sum(sum(row) * perplexity(row) for row in rows) / total,
        "largest_share": sum(map(max, rows)) / total,
        "effective_clients": sum(perplexity([row[c] for row in rows]) for c in classes) / len(classes),
        "missing_classes": missing / len(cohorts),
        "cohort_distance": float(distance / len(cohorts)),
    }


def test_all_numbers_agree_with_their_definitions():
    """An uneven table with a client without samples, a class that nobody holds, and a rare one."""
    generator = np.random.default_rng(3)
    table = np.floor(generator.dirichlet([0.2] * 7, size=12) * generator.integers(40, 400, (12, 1))).astype(int)
    table[4], table[:, 2], table[:, 5] = 0, 0, 0
    table[7, 5] = 6
    for cohort in (1, 3, 10, 11):
        expected, found = slow(table.tolist(), cohort), module.measure(table, cohort)
        for name in ("classes", "effective_classes", "largest_share", "effective_clients"):
            assert getattr(found, name) == pytest.approx(expected[name], rel=1e-12)
        # The mean of 1000 draws: about four of its deviations.
        exact = cohort == 11
        assert found.missing_classes == pytest.approx(expected["missing_classes"], abs=1e-12 if exact else 0.12)
        assert found.cohort_distance == pytest.approx(expected["cohort_distance"], abs=1e-12 if exact else 0.02)
    assert (found.clients, found.population, found.cohort) == (12, 12, 11)


def test_even_and_one_class_splits_have_closed_forms():
    even = module.measure(np.full((50, 200), 3), 7)
    assert (even.effective_classes, even.effective_clients) == (pytest.approx(200), pytest.approx(50))
    # 200 classes are half a percent each: none of them is lacking where all are there in equal parts.
    assert (even.missing_classes, even.cohort_distance) == (0, pytest.approx(0))
    assert even.largest_share == pytest.approx(1 / 200)

    # One class per client, ten clients per class: a cohort of m lacks class c with odds (90 over m) / (100 over m).
    single = module.measure(np.kron(np.eye(10, dtype=int), np.full((10, 1), 30)), 20)
    assert (single.effective_classes, single.largest_share) == (pytest.approx(1), 1)
    assert single.effective_clients == pytest.approx(10)
    assert single.missing_classes == pytest.approx(10 * math.comb(90, 20) / math.comb(100, 20), abs=0.1)

    # Everyone takes part: nothing is missing, however skewed the clients are.
    everyone = module.measure(np.eye(10, dtype=int), 10)
    assert (everyone.missing_classes, everyone.cohort_distance) == (0, pytest.approx(0))


def test_a_class_is_lacking_below_one_percent_or_a_tenth_of_its_own_share():
    def lacking(first: int, second: int) -> float:
        """Cohorts of one out of two clients with 1000 samples each, so many of them of the second class."""
        return module.measure(np.array([[1000 - first, first], [1000 - second, second]]), 1).missing_classes

    assert lacking(9, 991) > 0.9  # one class is below 1 % with either client
    assert lacking(10, 990) == 0
    rare = np.array([[10_000, 40], [10_000, 40]])
    assert module.measure(rare, 1).missing_classes == 0  # 0.4 % of all data, and of each cohort
    assert module.measure(np.array([[10_000, 80], [10_000, 2]]), 1).missing_classes == pytest.approx(0.5, abs=0.07)


def test_the_sentence_and_the_level_follow_the_numbers():
    levels = {
        "mild": module.measure(np.full((20, 10), 5), 5),
        "moderate": module.measure(np.kron(np.eye(10, dtype=int), np.full((10, 1), 30)), 40),
        "hard": module.measure(np.kron(np.eye(10, dtype=int), np.full((10, 1), 30)), 20),
    }
    for level, found in levels.items():
        assert found.level == level
        assert f"{level.capitalize()}: " in found.sentence()
    hard = levels["hard"].sentence()
    assert hard.startswith("A client sees 1.0 of 10 classes in effect. A cohort of 20 lacks ")
    assert f"lacks {levels['hard'].missing_classes:.2f} of 10 classes" in hard
    assert f"{100 * levels['hard'].cohort_distance:.0f} % of its samples" in hard
    assert ("effective clients per class", "10.0 of 100") in levels["hard"].facts()
    # With two classes, one class per client is not half of what there is to see.
    assert module.measure(np.array([[5, 0], [0, 5]]), 2).level == "moderate"


def test_a_split_is_measured_whole_and_a_population_by_its_first_clients():
    split = Dirichlet(alpha=0.1, min_size=0, allow_empty=True, cap=False).split(TEN, 40, seed=1)
    assert hardness(split, 5) == module.measure(split.table(), 5)
    assert hardness(split, 5) == hardness(split, 5)
    drawn = Drawn(samples=6, classes_per_client=3).split(TEN, 10**6, seed=0)
    found = hardness(drawn, 20)
    assert (found.clients, found.population) == (MOST_DRAWN, 10**6)
    assert found.effective_classes == pytest.approx(3)
    assert found.sentence().startswith("Of the first 1000 of 1000000 clients: a client sees 3.0 of 10 classes")
    assert hardness(IID().split(TEN, 10, seed=0), 4).level == "mild"


def test_numbers_come_back_from_a_file_and_only_if_they_are_whole():
    found = module.measure(np.arange(12).reshape(4, 3), 2)
    stored = json.loads(json.dumps(found.stored()))
    assert Hardness.restored(stored) == found
    for broken in (None, [], "hard", {}, stored | {"cohort": None}, stored | {"classes": "10"},
                   stored | {"cohort_distance": math.nan},
                   stored | {"clients": 10**400}):  # fmt: skip
        assert Hardness.restored(broken) is None


def test_what_cannot_be_measured_is_refused():
    for table, cohort in (([[0, 0]], 1), ([], 1), ([1, 2], 1), ([[1, 2]], 0)):
        with pytest.raises(Misconfigured, match="cannot be measured"):
            module.measure(table, cohort)
