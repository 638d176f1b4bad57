"""Method values are checked when they are built, and training cannot be switched off by accident."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import nn

import fedblade
from fedblade.core.errors import Misconfigured, NonFinite
from fedblade.core.method import Exchange, zeros
from fedblade.core.phase import Phase
from fedblade.core.terms import GradientTerm
from fedblade.core.views import HeadTensors
from fedblade.heads import LinearHead
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from fedblade.runs import Driver, RunListener, prepare
from support.small_federation import build, configure, train, vectors


def test_groups_that_do_not_exist_are_refused_with_the_nearest():
    with pytest.raises(Misconfigured, match="'head'"):
        Phase(trains=("haed",))
    with pytest.raises(Misconfigured, match="'norm'"):
        replace(fedavg(), personal=("nrm",))


def test_state_that_does_not_exist_is_refused():
    with pytest.raises(Misconfigured, match="client_update"):
        replace(fedavg(), client_update={"c": lambda view: view.params})
    with pytest.raises(Misconfigured, match="broadcast"):
        replace(fedavg(), server_state={"c": zeros}, broadcast=("zz",))


@pytest.mark.parametrize("when", ["before_run", "after_run"])
def test_an_exchange_outside_a_round_has_no_cohort(when):
    with pytest.raises(Misconfigured, match="no cohort"):
        Exchange(when, (), lambda state, sums: state, clients="cohort")


@dataclass(frozen=True)
class OddHead(LinearHead):
    """A head whose parameter belongs to no group."""

    def init(self, dim, num_classes, streams):
        made = super().init(dim, num_classes, streams).params
        return HeadTensors({"classifier.weight": made["head.weight"]}, {})


def test_a_head_parameter_outside_the_groups_is_refused():
    with pytest.raises(Misconfigured, match=r"classifier\.weight"):
        build(replace(fedavg(), head=OddHead()))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_callers_mode_does_not_switch_training_off(mode):
    data = vectors()
    usual = fedblade.run(method="fedavg", dataset=data, model="mlp", partition="iid", rounds=1)
    with mode():
        inside = fedblade.run(method="fedavg", dataset=data, model="mlp", partition="iid", rounds=1)
    assert inside.history[0]["test_loss"] == usual.history[0]["test_loss"]


class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 16)

    def forward(self, inputs):
        return self.layer(inputs).detach()


def test_a_loss_that_reaches_no_parameter_is_an_error():
    body_only = replace(fedavg(), phases=(Phase(trains=("body",)),))
    with pytest.raises(Misconfigured, match="do not depend on any trained parameter"):
        Driver(prepare(configure(body_only, model="object"), vectors(), Detached()), None, RunListener()).run()


@dataclass(frozen=True, kw_only=True)
class Blast(GradientTerm):
    """Pushes the personal head beyond what float can hold."""

    name: ClassVar[str] = "blast"

    def gradient(self, view):
        return {"head.bias": torch.full_like(view.params["head.bias"], torch.finfo(torch.float64).max)}


def test_a_client_never_keeps_what_is_not_finite():
    method = replace(fedavg(), personal=("head",), losses=(CrossEntropy(), Blast()), accuracy_of="personal")
    with pytest.raises(NonFinite, match="'personal'"):
        train(method, rounds=1, lr=100.0, epochs=1, batch_size=1000)


def test_the_default_dtype_of_the_caller_changes_nothing():
    usual = build().start
    torch.set_default_dtype(torch.float64)
    try:
        other = build().start
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(usual.params[name], other.params[name]) for name in usual.params)


class Masked(nn.Module):
    """A body with a constant buffer that holds infinities."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 16)
        self.register_buffer("never", torch.full((16,), -torch.inf))

    def forward(self, inputs):
        return torch.maximum(self.layer(inputs), self.never)


def test_buffers_that_are_no_statistics_stay_as_they_are():
    driver = Driver(prepare(configure(model="object"), vectors(), Masked()), None, RunListener())
    driver.run()
    assert torch.isinf(driver.state.buffers["body.never"]).all()
