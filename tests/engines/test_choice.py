"""`engine=auto` takes the stacked engine wherever it applies, and says once why where it does not."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import fedblade
from fedblade.core.errors import Unsupported
from fedblade.core.method import Exchange, Own, model
from fedblade.core.metric import Metric
from fedblade.core.phase import Phase
from fedblade.core.registry import methods, regularisers
from fedblade.core.sums import DataPass, Sum
from fedblade.core.terms import GradientTerm, Term, TermValue
from fedblade.core.views import Teacher
from fedblade.engines._many_clients import ManyClients
from fedblade.losses import CrossEntropy
from fedblade.losses._masking import mean_of_real
from fedblade.methods.fedavg import fedavg
from fedblade.runs import RunListener, UniqueNotes, execute, prepare
from fedblade.runs import _engine_choice as _engine
from fedblade.studies import PlannedRun, run_planned
from support.sample import sampled
from support.small_federation import BATCH_NORM, CNN, build, configure, images, vectors

NAMED = [*methods.names(), *(f"fedavg+{name}" for name in regularisers.names())]


def term(of):
    """Averaging with one more term, `of(view)`."""

    @dataclass(frozen=True, kw_only=True)
    class Extra(Term):
        name: ClassVar[str] = "extra"

        def __call__(self, view):
            return TermValue(of(view))

    return replace(fedavg(), losses=(CrossEntropy(), Extra()))


def summed(of):
    """Averaging with one more sum over the client's data, `of(view)`."""
    seen = Sum("seen", lambda view: view.passes["seen"], 1e6, (DataPass("seen", lambda view: {"x": of(view)}),))
    base = fedavg()
    return replace(base, sums=(*base.sums, seen))


def choice(method, data=None, **changes):
    setup = build(method, data, engine="auto", **changes)
    return setup.engine.name, setup.notes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sampled(NAMED))
def test_every_registered_method_is_stacked(name, dtype):
    """Without a conformance check, because all of it is ours; it would pass one."""
    setup = build(name, engine="auto", dtype=dtype, **BATCH_NORM)
    assert (setup.engine.name, setup.notes) == ("stacked", ())
    _engine.check_conformance(setup.engine, setup.start, setup.planner, setup.eligible, setup.metrics)


def test_what_is_ours_is_not_checked(monkeypatch):
    checked = []
    monkeypatch.setattr(_engine, "check_conformance", lambda *args: checked.append(args))
    assert choice("fedblade", **BATCH_NORM) == ("stacked", ())
    assert not checked
    assert choice(fedavg(), **BATCH_NORM) == ("stacked", ())
    assert len(checked) == 1


@pytest.mark.parametrize(
    "changes", [{}, {"norm_stats": "batch", **BATCH_NORM}, {"local.batch_size": 1}, {"persist": True}]
)
def test_settings_are_stacked(changes):
    assert choice("fedblade", **changes) == ("stacked", ())


def test_augmented_images_are_stacked():
    assert choice("fedblade", images(), **CNN, **{"dataset.augment": "crop_flip"}) == ("stacked", ())


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3))

    def forward(self, x):
        return self.layers(x)


class Centred(nn.Module):
    """Takes a mean over the batch, padding and all."""

    def forward(self, x):
        return x - x.mean(0)


def test_a_model_that_draws_is_not_stacked():
    setup = prepare(configure(engine="auto"), vectors(), Dropping())
    assert setup.engine.name == "sequential"
    assert setup.notes == (
        "engine: sequential, because the model has Dropout with random draws, made for one client at a time",
    )


def test_a_model_that_mixes_a_batch_is_not_stacked():
    setup = prepare(configure(engine="auto"), vectors(), Centred())
    assert setup.engine.name == "sequential"
    assert setup.notes == ("engine: sequential, because the model mixes samples of a batch",)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 4, batch_first=True)

    def forward(self, x):
        return self.lstm(x[:, None])[0][:, 0]


def test_recurrent_layers_are_not_stacked_on_a_cpu():
    setup = prepare(configure(engine="auto"), vectors(), Recurrent())
    assert setup.engine.name == "sequential"
    assert setup.notes == (
        "engine: sequential, because recurrent layers are faster on a CPU for one client after another",
    )
    assert prepare(configure(engine="stacked"), vectors(), Recurrent()).engine.name == "stacked"


def masked(view):
    return mean_of_real(view.features.square().mean(1), view.mask)


def branching(view):
    return masked(view) if view.features.sum() > 0 else 2 * masked(view)


counted = Sum("n", lambda view: {"n": view.counts * view.counts[0].item()}, 1e6)
NOT_STACKED = {
    "item": (term(lambda view: masked(view) * view.features.sum().item()), ".item()"),
    "branches": (term(branching), "data-dependent control flow"),
    "draws": (term(lambda view: masked(view) * torch.rand(())), "random"),
    "draws_with_numpy": (term(lambda view: masked(view) * np.random.default_rng().random()), "term extra"),
    "takes_padding": (term(lambda view: 1e-3 * view.features.square().mean()), "term extra gives other numbers"),
    "sum_takes_padding": (summed(lambda view: view.features.square().sum(0)), "pass seen gives other numbers"),
    "sum_with_item": (summed(lambda view: view.features.sum(0) * view.labels.max().item()), ".item()"),
    "state_with_item": (
        replace(
            fedavg(),
            client_state={"last": lambda view: {"norm": torch.zeros(())}},
            client_update={"last": lambda view: {"norm": torch.tensor(view.params["head.bias"].norm().item())}},
        ),
        ".item()",
    ),
    "exchange_with_item": (
        replace(
            fedavg(),
            exchanges=(Exchange("after_run", (counted,), lambda state, _: state),),
        ),
        ".item()",
    ),
    "own_logits_with_item": (
        replace(fedavg(), own=Own(logits=lambda view: view.logits * view.counts.sum().item())),
        ".item()",
    ),
    "second_phase": (
        replace(
            fedavg(),
            phases=(Phase(), Phase(losses=term(branching).losses)),
        ),
        "data-dependent control flow",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_STACKED)
def test_a_method_that_cannot_run_side_by_side_is_not_stacked(case):
    method, reason = NOT_STACKED[case]
    name, notes = choice(method)
    assert name == "sequential"
    assert len(notes) == 1
    assert notes[0].startswith("engine: sequential, because ")
    assert reason in notes[0]
    assert "\n" not in notes[0]


def gradient_term(of):
    """Averaging with one more term that is given by its gradient for the head's bias."""

    @dataclass(frozen=True, kw_only=True)
    class Extra(GradientTerm):
        name: ClassVar[str] = "push"

        def gradient(self, view):
            return {"head.bias": of(view)}

    return replace(fedavg(), losses=(CrossEntropy(), Extra()))


def taught(of):
    """Averaging with a term of the distance from what a teacher says, 0 where the teacher is the model itself."""

    @dataclass(frozen=True, kw_only=True)
    class Extra(Term):
        name: ClassVar[str] = "extra"

        @property
        def teachers(self):
            return (Teacher(),)

        def __call__(self, view):
            gap = view.features - view.teachers[Teacher()].features
            return TermValue(of(gap.square().mean(1), view.mask))

    return replace(fedavg(), losses=(CrossEntropy(), Extra()))


def logging(of):
    """Averaging with a term that is right and logs `of(view)`."""

    @dataclass(frozen=True, kw_only=True)
    class Extra(Term):
        name: ClassVar[str] = "extra"

        def __call__(self, view):
            return TermValue(masked(view), {"spread": of(view)})

    return replace(fedavg(), losses=(CrossEntropy(), Extra()))


def stateful(start, update, **changes):
    """Averaging whose clients keep `s`."""
    return replace(fedavg(), client_state={"s": lambda _: start}, client_update={"s": update}, **changes)


def several(view):
    """1 for a client alone, 2 where clients are side by side: what code must not depend on."""
    return 2.0 if isinstance(view.num_steps, torch.Tensor) else 1.0


def unmasked(view):
    return view.features.square().mean()


def mean_of_all(values, _mask):
    return values.mean()


ZERO = {"n": torch.zeros((), dtype=torch.float64)}
base = fedavg()
WRONG = {
    "distillation": (taught(mean_of_all), "the term extra gives other numbers side by side; it has to leave out"),
    "gradient_term": (
        gradient_term(lambda view: view.logits.mean(0)),
        "the gradient term push of head.bias gives other numbers",
    ),
    "log": (logging(lambda view: view.features.detach().mean()), "the logged spread gives other numbers"),
    "track": (
        replace(
            base,
            client_state={"mine": model},
            phases=(Phase(), Phase(track="mine", losses=gradient_term(lambda view: view.logits.mean(0)).losses)),
        ),
        "the client state 'mine' of head.bias gives other numbers",
    ),
    "track_term": (
        replace(
            base,
            client_state={"mine": model},
            phases=(Phase(), Phase(track="mine", losses=term(unmasked).losses)),
        ),
        "the term mine_extra gives other numbers",
    ),
    "term_of_kept_state": (
        stateful(
            ZERO,
            lambda view: {"n": view.client["s"]["n"] + 1},
            losses=term(lambda view: view.client["s"]["n"] * unmasked(view)).losses,
        ),
        "the term extra gives other numbers",
    ),
    "sum": (
        replace(base, sums=(*base.sums, Sum("odd", lambda view: {"n": several(view) * view.counts}, 1e6))),
        "the sum odd gives other numbers side by side",
    ),
    "exchange": (
        replace(
            base,
            exchanges=(
                Exchange(
                    "after_run", (Sum("odd", lambda view: {"n": several(view) * view.counts}, 1e6),), lambda s, _: s
                ),
            ),
        ),
        "the sum odd gives other numbers side by side",
    ),
    "state": (
        stateful(ZERO, lambda view: {"n": view.client["s"]["n"] + several(view)}),
        "the client state 's' gives other numbers side by side",
    ),
    "state_grows": (
        stateful({}, lambda view: {"n": view.counts.double()}),
        "the client state 's' changes its tensors' names",
    ),
    "state_renames": (
        stateful(ZERO, lambda view: {"m": view.client["s"]["n"]}),
        "the client state 's' changes its tensors' names",
    ),
    "state_reshapes": (
        stateful(ZERO, lambda view: {"n": view.counts.double()}),
        "the client state 's' changes its tensors' shapes",
    ),
    "state_retypes": (
        stateful({"n": torch.zeros((), dtype=torch.int64)}, lambda view: {"n": view.client["s"]["n"] + 0.5}),
        "the client state 's' changes its tensors' types",
    ),
    "state_retypes_side_by_side": (
        stateful({"n": torch.zeros(())}, lambda view: {"n": view.client["s"]["n"] + view.num_samples}),
        "the client state 's' changes its tensors' types",
    ),
    "own_logits": (
        replace(base, own=Own(logits=lambda view: view.logits - view.logits.mean(0))),
        "the personal prediction gives other numbers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_other_numbers_are_found_and_named(case):
    """In float32, whose rounding must hide none of them."""
    method, reason = WRONG[case]
    name, (note,) = choice(method, dtype="float32")
    assert name == "sequential"
    assert note.startswith(f"engine: sequential, because {reason}")


RIGHT = {
    "distillation": taught(mean_of_real),
    "gradient_term": gradient_term(lambda view: torch.func.vmap(mean_of_real, (1, None))(view.logits, view.mask)),
    "log": logging(lambda view: mean_of_real(view.features.detach().mean(1), view.mask)),
    "state": stateful(ZERO, lambda view: {"n": view.client["s"]["n"] + view.num_samples}),
}


@pytest.mark.parametrize("case", RIGHT)
def test_the_same_without_the_mistake_is_stacked(case):
    assert choice(RIGHT[case], dtype="float32") == ("stacked", ())


@pytest.mark.parametrize("batch_size", [3, 4, 5])
@pytest.mark.parametrize("changes", [{}, BATCH_NORM])
def test_padding_is_checked_whatever_the_batch_size(batch_size, changes):
    name, (note,) = choice(term(unmasked), **{"local.batch_size": batch_size}, **changes)
    assert name == "sequential"
    assert "the term extra gives other numbers side by side; it has to leave out what view.mask masks" in note


def test_padding_is_checked_where_clients_have_few_samples():
    data = vectors(train=12)
    assert choice(term(masked), data, partition="iid") == ("stacked", ())
    assert choice(term(unmasked), data, partition="iid")[0] == "sequential"


@pytest.mark.parametrize("changes", [{"local.batch_size": 1}, {"local.batch_size": 2, **BATCH_NORM}])
def test_batches_that_are_never_padded_may_ignore_the_mask(changes):
    assert choice(term(unmasked), **changes) == ("stacked", ())


def test_batches_without_padding_are_checked_too(monkeypatch):
    """They take a path of their own through normalisation layers."""
    features = ManyClients.features

    def wrong(self, params, fixed, buffers, inputs, mask, **given):
        found, stages = features(self, params, fixed, buffers, inputs, mask, **given)
        return (1.5 * found if mask is None else found), stages

    monkeypatch.setattr(ManyClients, "features", wrong)
    name, notes = choice(fedavg())
    assert (name, notes) == (
        "sequential",
        ("engine: sequential, because the model gives other features with clients side by side",),
    )


class Branching(nn.Module):
    def forward(self, x):
        return x * x.sum().item()


def test_a_model_that_fails_is_blamed():
    (note,) = prepare(configure(engine="auto"), vectors(), Branching()).notes
    assert note == (
        "engine: sequential, because the model fails with clients side by side: "
        "vmap: It looks like you're calling .item() on a Tensor"
    )


def test_an_error_is_quoted_in_short():
    def talkative(view):
        if view.mask is not None:
            raise RuntimeError("this term\nwas made for one client " + "after another " * 20 + ". Rewrite it.")
        return masked(view)

    (note,) = choice(term(talkative))[1]
    start = "engine: sequential, because the method fails with clients side by side: this term was made for one client"
    assert note.startswith(start)
    assert note.endswith(" …")
    assert len(note) < 180


def measured(of):
    setup = build("fedavg", engine="stacked")
    metric = Metric((DataPass("seen", lambda view: {"x": of(view)}),), lambda _: {})
    _engine.check_conformance(setup.engine, setup.start, setup.planner, setup.eligible, [metric])


def test_a_metric_is_named():
    measured(lambda view: mean_of_real(view.logits.square().sum(1), view.mask))
    with pytest.raises(Unsupported, match=r"^the metric seen gives other numbers side by side; it has to leave out"):
        measured(lambda view: view.logits.square().sum())
    with pytest.raises(Unsupported, match=r"^a metric fails with clients side by side: .*\.item\(\) on a Tensor$"):
        measured(lambda view: view.labels.max().item() * view.logits.sum(0))


@pytest.mark.parametrize("case", ["item", "takes_padding", "sum_with_item"])
def test_the_stacked_engine_by_name_is_an_error_there(case):
    with pytest.raises(Unsupported, match=r"engine 'stacked' cannot run this method: .*Use engine=sequential"):
        build(NOT_STACKED[case][0], engine="stacked")


def test_the_stacked_engine_by_name_does_not_ask_whether_it_pays():
    assert build("fedavg", engine="stacked", clients_per_round=1).engine.name == "stacked"


def test_one_client_per_round_is_not_stacked():
    name, notes = choice("fedavg", clients_per_round=1)
    assert (name, notes) == (
        "sequential",
        ("engine: sequential, because one client per round leaves nothing to put side by side",),
    )


def test_everyone_takes_part_where_the_method_says_so():
    assert choice(replace(fedavg(), participation="all"), clients_per_round=1)[0] == "stacked"


def test_a_large_model_is_not_stacked_on_a_cpu(monkeypatch):
    monkeypatch.setattr(_engine, "LARGE_STEP", 1.0)
    name, notes = choice("fedavg")
    assert (name, notes) == (
        "sequential",
        ("engine: sequential, because a step of this model keeps the CPU busy by itself",),
    )


def test_a_check_leaves_no_trace():
    """Neither in the generators nor in the state a run starts from."""
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    auto, plain = (build("fedblade", engine=name, **BATCH_NORM) for name in ("auto", "sequential"))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    for name, leaf in plain.start.flat().items():
        assert torch.equal(auto.start.flat()[name], leaf), name


class Listening(RunListener):
    def __init__(self):
        self.notes = []

    def on_note(self, text):
        self.notes.append(text)


SMALL = {
    "rounds": 2, "num_clients": 4, "clients_per_round": 2, "partition": "iid", "model": "mlp", "device": "cpu",
}  # fmt: skip


def test_a_run_says_once_why_it_is_not_stacked_and_its_summary_names_the_engine():
    listener = Listening()
    data = vectors()
    found = fedblade.run(dataset=data, listener=listener, **SMALL | {"clients_per_round": 1})
    assert [note for note in listener.notes if note.startswith("engine")] == [
        "engine: sequential, because one client per round leaves nothing to put side by side"
    ]
    assert found.summary["engine"] == "sequential"
    quiet = Listening()
    assert fedblade.run(dataset=data, listener=quiet, **SMALL).summary["engine"] == "stacked"
    assert not any(note.startswith("engine") for note in quiet.notes)


def test_runs_of_a_comparison_say_it_once(tmp_path, monkeypatch):
    listeners = []

    class DiagnosticRequest:
        def __init__(self, label):
            listeners.append(Listening())

        def __enter__(self):
            return listeners[-1]

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(
        "fedblade.studies._planned_run.execute",
        lambda config, out, resume, dataset, model, listener: execute(config, dataset=vectors(), listener=listener),
    )
    cells = [
        PlannedRun(f"seed {seed}", tmp_path / str(seed), configure(engine="auto", seed=seed, clients_per_round=1))
        for seed in (1, 2)
    ]
    assert run_planned(cells, DiagnosticRequest) == {}
    about = [[note.partition(":")[0] for note in listener.notes] for listener in listeners]
    assert about == [["engine", "inputs", "clients"], []]


def test_a_watcher_that_passes_notes_on_once_passes_everything_else_on():
    calls = []

    class Everything:
        def __getattr__(self, name):
            return lambda *given: calls.append((name, given))

    once = UniqueNotes(Everything(), set())
    once.on_start("setup", [])
    once.on_client(1, 2)
    once.on_round({"round": 1})
    once.on_personal_model(1, 3)
    once.on_note("a")
    once.on_note("a")
    once.on_note("b")
    assert calls == [
        ("on_start", ("setup", [])), ("on_client", (1, 2)), ("on_round", ({"round": 1},)),
        ("on_personal_model", (1, 3)), ("on_note", ("a",)), ("on_note", ("b",)),
    ]  # fmt: skip


def observed(of):
    setup = build("fedavg", engine="stacked")
    sums = (Sum("seen", lambda view: {"x": of(view)}, bound=1.0),)
    _engine.check_conformance(
        setup.engine, setup.start, setup.planner, setup.eligible, [Metric((), lambda _: {}, sums)]
    )


def test_what_a_metric_sees_of_clients_is_checked():
    observed(lambda view: view.counts.double().sum())
    with pytest.raises(Unsupported, match="a metric fails with clients side by side"):
        observed(lambda view: torch.tensor(float(view.counts.sum())))
