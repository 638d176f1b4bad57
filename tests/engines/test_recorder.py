"""Programs: what a recorded computation repeats, and what must not be recorded."""

import pytest
import torch
from torch import nn

from fedblade.engines._program import Changed, generalised, inputs_of
from fedblade.engines._recorder import Unrecordable, record


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def recorded(function, *inputs):
    """The program of a function of tensors as a function; it is recorded on copies."""
    copies = [leaf.clone() for leaf in inputs]
    code = record(lambda: function(*copies), copies).code(inputs_of(len(inputs)))
    return lambda *given: code(0, given)


def gradient_side_by_side(weights, inputs):
    """A gradient with autograd under vmap, a function of its own and a statistic that changes in place."""
    leaf = weights.detach().requires_grad_()
    inputs.mul_(0.5)

    def loss(weight, sample):
        return nn.functional.softplus(weight @ sample).sum()

    total = torch.func.vmap(loss)(leaf, inputs).sum()
    return [*torch.autograd.grad(total, [leaf]), total.detach()]


def test_a_program_gives_the_same_bits_and_changes_for_other_numbers():
    repeat = recorded(gradient_side_by_side, numbers(3, 4, 5), numbers(3, 5))
    for seed in (1, 2):
        weights, inputs = numbers(3, 4, 5, seed=seed), numbers(3, 5, seed=seed)
        twin = inputs.clone()
        with torch.no_grad():
            found = repeat(weights, inputs)
        for one, other in zip(found, gradient_side_by_side(weights, twin), strict=True):
            assert torch.equal(one, other)
        assert torch.equal(inputs, twin), "what is changed in place"


def test_a_program_has_no_operation_that_nobody_needs():
    x = numbers(2)

    def wasteful():
        x.exp().sin()
        return [x.detach() + 1]

    assert len(record(wasteful, [x]).calls) == 1


def test_a_number_written_as_a_tensor_is_new_in_each_run():
    def counting(x):
        start = torch.tensor([1.0, 2.0], dtype=torch.float64)
        start[0] += 1
        return [x + start.add_(1)]

    repeat = recorded(counting, numbers(2))
    assert torch.equal(repeat(numbers(2))[0], repeat(numbers(2))[0])
    assert torch.equal(repeat(numbers(2))[0], counting(numbers(2))[0])


def swallowing(x):
    """Python code that takes another way after an error."""
    try:
        return [x * x[0].item()]
    except Exception:
        return [x]


KEPT = numbers(2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [x + torch.rand(2)],
        lambda x: [nn.functional.dropout(x)],
        lambda x: [x[x > 0]],
        lambda x: [x.nonzero()],
        lambda x: [x.unique()],
        lambda x: [x * x[0].item()],
        lambda x: [x * float(x.sum())],
        lambda x: [x * x.tolist()[0]],
        lambda x: [x * x.numpy()[0]],
        lambda x: [x + torch.from_numpy(x.__array__())],
        lambda x: [x if torch.equal(x, x) else -x],
        lambda x: [x + KEPT.add_(1)],
        swallowing,
    ],
)
def test_what_depends_on_numbers_or_luck_is_not_recorded(function):
    state = torch.get_rng_state()
    with pytest.raises(Unrecordable):
        recorded(function, numbers(2))
    assert torch.equal(torch.get_rng_state(), state), "no draw is used up"


def test_a_yes_or_no_is_checked_in_every_run():
    def branching(x):
        return [x.square()] if x[0] > 0 else [-x]

    repeat = recorded(branching, numbers(3).abs())
    assert torch.equal(repeat(numbers(3).abs())[0], numbers(3).square())
    with pytest.raises(Changed):
        repeat(-numbers(3).abs())


def of_clients(function, clients):
    inputs = [numbers(clients, 3, seed=clients)]
    return record(lambda: function(*inputs), inputs)


def test_programs_of_two_numbers_of_clients_make_one_for_every_number():
    def folded(x):
        return [x.t().reshape(3 * len(x)).view(len(x), 3).repeat(2 * len(x) + 1, 1)]

    program = generalised(of_clients(folded, 5), 5, of_clients(folded, 3), 3)
    for clients in (2, 4, 7):
        x = numbers(clients, 3)
        assert torch.equal(program.code(inputs_of(1))(clients, [x])[0], folded(x)[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [x * (1 / len(x))],
        lambda x: [x.repeat(10 if len(x) == 3 else 21, 1)],
        lambda x: [x.sin()] if len(x) == 3 else [x.cos()],
        lambda x: [x, x] if len(x) == 3 else [x],
        lambda x: [x + torch.tensor([1.0, 2.0, float(len(x))])],
    ],
)
def test_programs_that_differ_in_more_than_whole_numbers_stay_apart(function):
    assert generalised(of_clients(function, 6), 6, of_clients(function, 3), 3) is None
