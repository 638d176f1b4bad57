"""Passes over programs: fewer calls, the same bits, whatever is changed in place."""

import random

import pytest
import torch

from fedblade.engines._program import inputs_of
from fedblade.engines._program_passes import ahead, without_repetitions
from fedblade.engines._recorder import record
from support.for_every import for_every

STEPS = 3
"""Inputs of a function that are the same tensors in every run; the one after them is new in each."""


def numbers(seed):
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))


def split(function, still=2):
    """The program of a function of four tensors as two: once before all runs, and in each run."""
    copies = [numbers(seed) for seed in range(STEPS + 1)]
    program = record(lambda: function(*copies), copies)
    same = inputs_of(STEPS)
    return ahead(without_repetitions(program), same, same[:still])


def check(function):
    """Three runs in a row give the bits of the function; returns the two programs."""
    first, rest = split(function)
    of_steps, twins = ([numbers(seed + 10) for seed in range(STEPS)] for _ in range(2))
    made = first.code(inputs_of(STEPS))(0, of_steps)
    code = rest.code([*first.outputs, *inputs_of(STEPS + 1)])
    for run in range(3):
        outputs = code(0, [*made, *of_steps, numbers(run + 20)])
        for one, other in zip(outputs, function(*twins, numbers(run + 20)), strict=True):
            assert torch.equal(one, other)
            # Who gets an output may change it.
            one.add_(1)
            other.add_(1)
        # The third tensor changes between runs, as models do.
        for leaf in (of_steps[2], twins[2]):
            leaf.mul_(0.5).add_(run)
        assert all(map(torch.equal, of_steps, twins))
    return first, rest


def random_function(seed):
    """A function of four tensors that looks at them in other ways, changes them in place and repeats itself."""
    draw = random.Random(seed)
    plain = [torch.add, torch.mul, torch.sub, torch.maximum]
    views = [lambda x: x.t(), lambda x: x.view(2, 8).view(4, 4), lambda x: x[:], lambda x: x.flip(0), torch.neg]
    plan = [(draw.random(), draw.random(), draw.random(), draw.randrange(4), draw.randrange(5)) for _ in range(30)]

    def function(*leaves):
        known = list(leaves)
        for kind, one, other, operation, look in plan:
            a, b = known[int(one * len(known))], known[int(other * len(known))]
            if kind < 0.5:
                known.append(plain[operation](a, b))
            elif kind < 0.8:
                known.append(views[look](a.contiguous() if look == 1 else a))
            elif kind < 0.9:
                known.append(torch.zeros_like(a))
            elif a._base is None and all(a is not leaf for leaf in leaves[:2]):
                a.mul_(0.5)
            else:
                known[-1] = known[-1].clone().sub_(b)
        return [leaf.clone() for leaf in known[-3:]]

    return function


@for_every(range(40))
def test_random_functions_keep_every_bit(seed):
    check(random_function(seed))


def test_what_is_computed_twice_is_computed_once():
    _, rest = check(lambda a, b, c, d: [(c * d).exp() + (c * d).exp()])
    assert len(rest.calls) == 3


def test_what_changed_in_between_is_computed_again():
    def function(a, b, c, d):
        first = (d + 1).sum(0)
        d.t().mul_(2)
        return [first, (d + 1).sum(0)]

    _, rest = check(function)
    assert len(rest.calls) == 6


def test_a_result_that_is_changed_is_nobody_elses():
    def function(a, b, c, d):
        one, other = torch.zeros_like(d), torch.zeros_like(d)
        one.add_(d)
        return [one + 1, other + 1, one, other]

    check(function)


@pytest.mark.parametrize("number", [1.0, True, -0.0])
def test_numbers_of_other_types_and_signs_are_other_numbers(number):
    def function(a, b, c, d):
        whole, nothing = d.to(torch.int64), d * -0.0
        of_type = [torch.full_like(whole * factor, 0.5) + d for factor in (int(number), number)]
        return [*of_type, *(1 / (nothing + zero) + 1 for zero in (int(number), number))]

    check(function)


def test_a_still_tensor_that_a_step_changes_is_read_in_every_step():
    def function(a, b, c, d):
        before = (a * 2).exp()
        a.add_(d)
        return [before + d, (a * 2).exp() + d]

    check(function)


def test_what_depends_on_still_tensors_alone_is_computed_before_the_steps():
    first, rest = check(lambda a, b, c, d: [d + (a @ b).softmax(0)])
    assert (len(first.calls), len(rest.calls)) == (2, 1)


def test_a_model_is_looked_at_once_and_read_in_every_step():
    first, rest = check(lambda a, b, c, d: [d @ c.t(), c.t().sum(0)])
    assert (len(first.calls), len(rest.calls)) == (1, 2)


def test_outputs_are_new_in_every_run():
    first, _ = check(lambda a, b, c, d: [a + b, d * 2, torch.zeros_like(a), torch.zeros_like(a)])
    assert not first.calls
