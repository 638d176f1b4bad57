"""Two rounds of every rule that moves the model, on one weight, with numbers worked out by hand.

Five clients exist; A and B take part. Client k has the loss (w − b_k)²/2 with b_A = 4 and b_B = −8, so its gradient is
w − b_k. The rate is 0.5, so a step halves the way to b_k, and w starts at 0. A weighs three times what B weighs.
Without momentum and corrections, two steps from w go three quarters of the way: Δ_k = 0.75·(b_k − w).
Rules on statistics of classes are in `test_class_rules_by_hand.py`.
"""

from dataclasses import dataclass
from functools import reduce
from operator import add

import pytest
import torch

from fedblade.core.end import effective_steps
from fedblade.core.method import InitView
from fedblade.core.phase import MoveView
from fedblade.core.state import ServerState
from fedblade.core.terms import GradientTerm
from fedblade.core.views import EndView, StepView
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedavgm import fedavgm
from fedblade.methods.feddyn import feddyn
from fedblade.methods.fedexp import fedexp
from fedblade.methods.fednova import fednova
from fedblade.methods.perfedavg import perfedavg
from fedblade.methods.scaffold import scaffold
from support.one_client import sums_of

NAME, POPULATION, LR = "head.weight", 5, 0.5
TARGETS, WEIGHTS = {"A": 4.0, "B": -8.0}, {"A": 1.5, "B": 0.5}
# Running means that the clients end with, and how many batches they have seen: 0.75·1 + 0.25·5 = 2, and the larger.
STATISTICS = {"A": (1.0, 7), "B": (5.0, 3)}


def number(value):
    return torch.tensor([value], dtype=torch.float64)


@dataclass
class Toy:
    """The federation: a method's real terms, sums, updates and server step around a local loop on one weight."""

    method: object
    steps: dict
    momentum: float = 0.0

    def __post_init__(self):
        start = {NAME: number(0.0)}
        init = InitView(start, dim=1, num_classes=2, population=POPULATION)
        buffers = {"body.running_mean": number(0.0), "body.num_batches_tracked": torch.tensor(0)}
        extra = {name: make(init) for name, make in self.method.server_state.items()}
        self.state = ServerState(start, buffers, {}, extra)
        self.clients = {k: {n: make(init) for n, make in self.method.client_state.items()} for k in TARGETS}

    def round(self):
        views = {k: self.local(k) for k in TARGETS}
        sums = reduce(add, (sums_of(self.method.sums, view, 0) for view in views.values()))
        for k, view in views.items():
            self.clients[k] = {name: update(view) for name, update in self.method.client_update.items()}
        self.state = self.method.server(self.state, sums)
        return self.state.params[NAME].item()

    def local(self, k):
        anchor, velocity = dict(self.state.params), 0.0
        weight = anchor[NAME]
        sent = {name: self.state.extra[name] for name in self.method.sent}
        (phase,) = self.method.phases
        for _ in range(self.steps[k]):
            gradient = weight - TARGETS[k]
            if phase.lookahead is not None:
                moved = phase.lookahead.move(MoveView({NAME: weight}, anchor, {NAME: gradient}, LR))[NAME]
                gradient = moved - TARGETS[k]
            fields = dict.fromkeys(StepView.__dataclass_fields__)
            seen = {"params": {NAME: weight}, "anchor": anchor, "server": sent, "client": self.clients[k]}
            for term in self.method.losses:
                if isinstance(term, GradientTerm):
                    gradient = gradient + term.weight * term.gradient(StepView(**{**fields, **seen}))[NAME]
            velocity = self.momentum * velocity + gradient
            weight = weight - (LR if phase.sgd.lr is None else phase.sgd.lr) * velocity
        mean, batches = STATISTICS[k]
        return EndView(
            params={NAME: weight},
            buffers={"body.running_mean": number(mean), "body.num_batches_tracked": torch.tensor(batches)},
            anchor=anchor,
            fixed={},
            head=self.method.head,
            counts=torch.ones(2),
            num_samples=30,
            num_steps=self.steps[k],
            effective_steps=effective_steps(self.steps[k], self.momentum),
            lr=LR,
            weight=WEIGHTS[k],
            population=POPULATION,
            shared=frozenset((NAME, "body.running_mean", "body.num_batches_tracked")),
            round=0,
            server=sent,
            client=self.clients[k],
            passes={},
        )

    def server(self, name, key=NAME):
        return self.state.extra[name][key].item()

    def own(self, name):
        return [self.clients[k][name][NAME].item() for k in TARGETS]


def near(value):
    return pytest.approx(value, rel=0, abs=1e-12)


TWO_EACH = {"A": 2, "B": 2}
UNEQUAL = {"A": 2, "B": 1}


def test_fedavg():
    """Round 1: A 0→2→3, B 0→−4→−6; 0.75·3 − 0.25·6 = 0.75. Round 2: A ends at 3.1875, B at −5.8125."""
    toy = Toy(fedavg(), TWO_EACH)
    assert toy.round() == near(0.75)
    assert toy.round() == near(0.9375)


def test_fedavgm_heavy_ball():
    """Mean updates 0.75, then 0.46875 from w = 0.375; M = 0.75, then 0.375 + 0.46875; half of it is added."""
    toy = Toy(fedavgm("heavy_ball", rho=0.5, eta_s=0.5), TWO_EACH)
    assert (toy.round(), toy.server("momentum")) == (near(0.375), near(0.75))
    assert (toy.round(), toy.server("momentum")) == (near(0.796875), near(0.84375))


def test_fedavgm_heavy_ball_at_full_rate():
    """M = 0.75; then 0.375 + 0.1875 from w = 0.75."""
    toy = Toy(fedavgm(rho=0.5), TWO_EACH)
    assert (toy.round(), toy.server("momentum")) == (near(0.75), near(0.75))
    assert (toy.round(), toy.server("momentum")) == (near(1.3125), near(0.5625))


def test_fedavgm_ema():
    """M = 0.25·0.75 = 0.1875; from there the mean update is 0.609375 and M = 0.140625 + 0.15234375."""
    toy = Toy(fedavgm("ema", rho=0.75), TWO_EACH)
    assert (toy.round(), toy.server("momentum")) == (near(0.1875), near(0.1875))
    assert (toy.round(), toy.server("momentum")) == (near(0.48046875), near(0.29296875))


def test_scaffold():
    """Round 1 as FedAvg; c_A = −3/(0.5·2) = −3, c_B = 6, c = 3/5, whatever the weights.

    Round 2, from 0.75: A is corrected by 3.6 and goes to 0.575, 0.4875; B by −5.4 and goes to −0.925, −1.7625.
    0.75 − 0.75·0.2625 − 0.25·2.5125 = −0.075. c_A = −3 − 0.6 + 0.2625, c_B = 6 − 0.6 + 2.5125,
    c = 0.6 + (−0.3375 + 1.9125)/5.
    """
    toy = Toy(scaffold(), TWO_EACH)
    assert (toy.round(), toy.own("c"), toy.server("c")) == (near(0.75), near([-3.0, 6.0]), near(0.6))
    assert (toy.round(), toy.own("c"), toy.server("c")) == (near(-0.075), near([-3.3375, 7.9125]), near(0.915))


@pytest.mark.parametrize(("adaptive", "own", "server"), [(True, [-3.2, 6.4], 0.64), (False, [-4.0, 8.0], 0.8)])
def test_scaffold_with_momentum(adaptive, own, server):
    """Momentum 0.5: A 0→2→4, B 0→−4→−8. Two steps count as 1 + 1.5 = 2.5, or as 2."""
    toy = Toy(scaffold(adaptive_division=adaptive), TWO_EACH, momentum=0.5)
    assert (toy.round(), toy.own("c"), toy.server("c")) == (near(1.0), near(own), near(server))


def test_fednova():
    """A makes two steps to 3, B one to −4. Mean steps 1.75, mean update per step 0.75·1.5 − 0.25·4 = 0.125.

    Round 2, from 0.21875: Δ_A = 2.8359375, Δ_B = −4.109375; 1.0634765625 − 1.02734375 = 0.0361328125 per step.
    """
    toy = Toy(fednova(), UNEQUAL)
    assert toy.round() == near(0.21875)
    assert toy.round() == near(0.281982421875)
    assert toy.method.gauges["step_ratio"](toy.state) == near(2.0)


def test_fednova_with_momentum():
    """Momentum 0.5: A goes to 4 in 2.5 effective steps, B to −4 in one. 2.125·(0.75·1.6 − 0.25·4) = 0.425."""
    toy = Toy(fednova(), UNEQUAL, momentum=0.5)
    assert toy.round() == near(0.425)
    assert toy.method.gauges["step_ratio"](toy.state) == near(2.5)


def test_feddyn():
    """α = 0.5. Round 1: A 0→2→2.5, B 0→−4→−5. h_A = −1.25, h_B = 2.5, h = −0.1·(2.5 − 5); 0.625 − 0.25/0.5 = 0.125.

    Round 2: A 0.125→1.4375→1.765625, B 0.125→−2.6875→−3.390625, so Δ_A = 1.640625 and Δ_B = −3.515625.
    h_A = −1.25 − 0.8203125, h_B = 2.5 + 1.7578125, h = 0.25 + 0.1·1.875; mean 0.4765625, less 0.4375/0.5.
    """
    toy = Toy(feddyn(alpha_dyn=0.5), TWO_EACH)
    assert (toy.round(), toy.own("h"), toy.server("h")) == (near(0.125), near([-1.25, 2.5]), near(0.25))
    assert (toy.round(), toy.own("h"), toy.server("h")) == (
        near(-0.3984375),
        near([-2.0703125, 4.2578125]),
        near(0.4375),
    )


def test_fedexp():
    """Round 1: 0.75·9 + 0.25·36 = 15.75 over 2·(0.5625 + 0.0625) is 12.6, times 0.75.

    Round 2, from 9.45: Δ_A = −4.0875, Δ_B = −13.0875, mean −6.3375; 55.35140625/80.4528125 is below 1.
    """
    toy = Toy(fedexp(eps=0.0625), TWO_EACH)
    rate = toy.method.gauges["server_rate"]
    assert (toy.round(), rate(toy.state)) == (near(9.45), near(12.6))
    assert (toy.round(), rate(toy.state)) == (near(3.1125), near(1.0))


def test_fedexp_without_eps():
    """15.75/(2·0.5625) = 14, times 0.75."""
    toy = Toy(fedexp(eps=0.0), TWO_EACH)
    assert (toy.round(), toy.method.gauges["server_rate"](toy.state)) == (near(10.5), near(14.0))


def test_perfedavg():
    """An inner step at 0.75 leaves a quarter of the gradient; at β = 0.5 a step goes an eighth of the way to b_k.

    Round 1: A 0→0.5→0.9375, B 0→−1→−1.875; the plain mean is −0.46875, whatever the weights.
    Two steps go 1 − 0.875² = 0.234375 of the way: Δ_A = 0.234375·4.46875, Δ_B = −0.234375·7.53125, half their sum is
    −0.35888671875. The running mean is (1 + 5)/2.
    """
    toy = Toy(perfedavg(alpha_in=0.75, beta_out=0.5), TWO_EACH)
    assert toy.round() == near(-0.46875)
    assert toy.state.buffers["body.running_mean"].item() == near(3.0)
    assert toy.round() == near(-0.82763671875)


def test_perfedavg_with_the_rate_of_the_run_inside():
    """An inner step at 0.5 and β = 0.5: a quarter of the way. A 0→1→1.75, B 0→−2→−3.5."""
    assert Toy(perfedavg(beta_out=0.5), TWO_EACH).round() == near(-0.875)


def test_perfedavg_leaves_out_who_made_no_step():
    """A alone: 0.9375 and its running mean of 1."""
    toy = Toy(perfedavg(alpha_in=0.75, beta_out=0.5), {"A": 2, "B": 0})
    assert toy.round() == near(0.9375)
    assert toy.state.buffers["body.running_mean"].item() == near(1.0)


METHODS = {
    "fedavg": fedavg(),
    "heavy_ball": fedavgm(eta_s=3.0),
    "ema": fedavgm("ema"),
    "scaffold": scaffold(),
    "fednova": fednova(),
    "feddyn": feddyn(0.5),
    "fedexp": fedexp(0.0),
}


@pytest.mark.parametrize("method", METHODS)
def test_statistics_are_averaged_and_counters_are_maxima(method):
    """0.75·1 + 0.25·5 and max(7, 3), in the first round and the second, whatever happens to the weight."""
    toy = Toy(METHODS[method], UNEQUAL)
    for _ in range(2):
        toy.round()
        assert toy.state.buffers["body.running_mean"].item() == near(2.0)
        assert toy.state.buffers["body.num_batches_tracked"].item() == 7
        assert toy.state.buffers["body.num_batches_tracked"].dtype == torch.int64


@pytest.mark.parametrize("method", METHODS)
def test_a_server_step_leaves_the_old_state_alone(method):
    toy = Toy(METHODS[method], UNEQUAL)
    toy.round()
    old, before = toy.state, {name: leaf.clone() for name, leaf in toy.state.flat().items()}
    toy.round()
    assert all(torch.equal(leaf, before[name]) for name, leaf in old.flat().items())
    assert toy.state.flat().keys() == before.keys()
