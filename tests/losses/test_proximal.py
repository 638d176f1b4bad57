from dataclasses import replace

import torch

from fedblade.losses import Proximal


def test_gradient_is_that_of_half_the_squared_distance(step):
    view, mu = step(), 0.3
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in view.params.items()}
    distance = sum((leaf - view.anchor[name]).square().sum() for name, leaf in leaves.items())
    expected = torch.autograd.grad(mu / 2 * distance, list(leaves.values()))
    term = Proximal(weight=mu)
    ours = [mu * each for each in term.gradient(view).values()]
    torch.testing.assert_close(ours, list(expected))
    assert term.name == "prox"
    assert not torch.allclose(ours[0], -expected[0])


def test_first_step_of_a_round_adds_nothing_and_builds_no_graph(step):
    view = step()
    live = {name: leaf.clone().requires_grad_() for name, leaf in view.params.items()}
    gradient = Proximal().gradient(replace(view, params=live, anchor=view.params))
    assert all((each == 0).all() and not each.requires_grad for each in gradient.values())
