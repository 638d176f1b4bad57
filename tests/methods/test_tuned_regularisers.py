"""`x+reg-ft`: a regulariser belongs to whatever loss clients are tuned on."""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from fedblade.core.method import Own, model
from fedblade.core.phase import Phase
from fedblade.core.problem import PERSONAL
from fedblade.losses import CrossEntropy, KnowledgeDistillation, Proximal
from fedblade.methods import compose
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedetf import fedetf
from fedblade.personal import finetuned
from fedblade.regularisers._mix import added, mixed, with_terms
from support.one_client import adapt_client
from support.small_federation import (
    BATCH_NORM,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    train,
    vectors,
)

ADDING = ["feddecorr", "lddecorr", "decov", "stdecov", "lsingular"]
MIXING = ["prox", "kd", "ntd", "ld", "fd"]
SETTING = {"epochs": 1, "dataset.test_split": "matched", **BATCH_NORM}


def tuned(setup, client=1):
    """The client's parameters after fine-tuning of the run's first model."""
    (phases,) = setup.method.own.tuning["ft"]
    task = setup.planner.task(2, client)
    return adapt_client(setup.problem, setup.start, task, None, 0.05, phases).state[PERSONAL]


@cache
def tuned_alone(base):
    return tuned(build(f"{base}-ft", **SETTING))


def weights(terms):
    return [(term.name, pytest.approx(term.weight)) for term in terms]


@pytest.mark.parametrize("beta", [0.9, 0.3])
@pytest.mark.parametrize("teacher_norm", ["eval", "batch"])
def test_dotreg_with_distillation_is_feddr_plus_after_tuning_too(beta, teacher_norm):
    """Bit for bit, in the rows of the clients as in the run."""
    knobs = {"method.fd.beta": beta, "method.fd.teacher_norm": teacher_norm}
    ours = train("dotreg+fd-ft", vectors(150, 100), **knobs, **SETTING)
    theirs = train("feddr_plus-ft", vectors(150, 100), beta=beta, teacher_norm=teacher_norm, **SETTING)
    assert_same_run(ours, theirs)
    assert len(ours.driver.clients) == 4
    assert ours.driver.clients == theirs.driver.clients
    assert_same_bits(tuned(ours.setup), tuned(theirs.setup))


def test_another_share_tunes_another_model():
    """The counterpart that keeps the equality above honest."""
    setups = [build("dotreg+fd-ft", **{"method.fd.beta": beta}, **SETTING) for beta in (0.9, 0.3)]
    assert_different(*map(tuned, setups))


PAIRS = set(product(["dotreg", "feddr_plus", "fedavg", "fedbabu", "fedetf"], [*ADDING, *MIXING]))


@pytest.mark.parametrize(("base", "reg"), sorted(PAIRS - {("feddr_plus", "fd")}))
def test_a_regulariser_is_felt_in_fine_tuning(base, reg):
    strong = {f"method.{reg}.beta": 0.5} if reg in MIXING else {f"method.{reg}.lambda_decorr": 1.0}
    assert_different(tuned(build(f"{base}+{reg}-ft", **strong, **SETTING)), tuned_alone(base))


@pytest.mark.parametrize(("base", "loss"), [("dotreg", "feddr_plus"), ("feddr_plus", "dotreg")])
@pytest.mark.parametrize("reg", ["feddecorr", "kd"])
def test_a_regulariser_joins_the_loss_that_is_named_for_fine_tuning(base, loss, reg):
    named = {"ft.loss": loss}
    assert_different(
        tuned(build(f"{base}+{reg}-ft", **named, **SETTING)), tuned(build(f"{base}-ft", **named, **SETTING))
    )
    (phase,) = build(f"{base}+{reg}-ft", **named).method.own.finetune
    share = 0.9 if reg == "kd" else 1.0
    expected = [("supervised", 0.9 * share), ("fd", 0.1 * share)] if loss == "feddr_plus" else [("supervised", share)]
    assert weights(phase.losses)[:-1] == expected
    assert phase.losses[-1].name == ("kd" if reg == "kd" else "decorr")


def test_distillation_stays_in_the_fine_tuning_of_fedavg():
    setup = build("fedavg+kd-ft", **SETTING)
    by_hand = finetuned(replace(fedavg(), losses=(CrossEntropy(weight=0.9), KnowledgeDistillation(weight=1 - 0.9))))
    assert_same_bits(tuned(setup), tuned(build(by_hand, **SETTING)))
    assert_different(tuned(setup), tuned_alone("fedavg"))


@pytest.mark.parametrize("reg", ["feddecorr", "fd"])
def test_the_stages_of_fedetf_keep_the_loss_of_their_card(reg):
    """2.21.1 defines them with plain cross-entropy."""
    assert compose(f"fedetf+{reg}").build({}).own.tuning == fedetf().own.tuning


TRACKED = replace(
    fedavg(),
    phases=(Phase(), Phase(losses=(CrossEntropy(),)), Phase(track="own", losses=(CrossEntropy(), Proximal()))),
    client_state={"own": model},
    own=Own(
        state="own",
        finetune=(Phase(), Phase(losses=(CrossEntropy(),))),
        tuning={"gapa": ((Phase(losses=(CrossEntropy(),)),), (Phase(),)), "pers_etf": ((Phase(losses=()),),)},
    ),
)


def losses_of(method):
    """Names of the terms of every place that can hold any; None where a phase has none of its own."""

    def each(phases):
        return [None if phase.losses is None else [term.name for term in phase.losses] for phase in phases]

    tuning = {protocol: [each(phases) for phases in stages] for protocol, stages in method.own.tuning.items()}
    return [term.name for term in method.losses], each(method.phases), each(method.own.finetune), tuning


def test_every_loss_of_the_received_model_is_changed_and_no_other():
    changed = with_terms(TRACKED, lambda terms: (*terms, KnowledgeDistillation()))
    both = ["supervised", "kd"]
    tuning = {"gapa": [[both], [None]], "pers_etf": [[[]]]}
    assert losses_of(changed) == (both, [None, both, ["supervised", "prox"]], [None, both], tuning)
    assert with_terms(TRACKED, lambda terms: terms) == TRACKED
    assert changed.own.state == "own"


def test_adding_keeps_the_weights_and_mixing_shares_them():
    term = Proximal(weight=0.5)
    assert weights(added(term)(TRACKED).own.finetune[1].losses) == [("supervised", 1.0), ("prox", 0.5)]
    assert weights(mixed(0.8, term)(TRACKED).own.finetune[1].losses) == [("supervised", 0.8), ("prox", 0.1)]
