"""Server rules on statistics of classes, with numbers worked out by hand for two clients in two dimensions."""

import math
from functools import reduce
from operator import add

import pytest
import torch

from fedblade import payloads
from fedblade.core.method import InitView
from fedblade.core.state import ServerState
from fedblade.core.streams import Streams
from fedblade.core.sums import Sums
from fedblade.core.views import EndView, StepView
from fedblade.losses import adaptation
from fedblade.methods.ccvr import ccvr
from fedblade.methods.fedgela import fedgela
from fedblade.methods.fednh import fednh
from fedblade.methods.spherefed import spherefed
from fedblade.server import (
    FeatureGenerator,
    GeneratorTraining,
    class_gaussian,
    label_shares,
    move_prototypes,
    no_moments,
    no_prototypes,
    run_seed,
    update_prototypes,
    virtual_features,
)
from fedblade.server._train_generator import adam
from support.one_client import sums_of

CLASSES, DIM = 3, 2
A_HALF = math.sqrt(0.5)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def near(actual, *expected, tolerance=1e-12):
    torch.testing.assert_close(actual, rows(*expected), rtol=0, atol=tolerance)
    return True


def init_view(**params):
    return InitView({"head.weight": torch.zeros(CLASSES, DIM, dtype=torch.float64), **params}, DIM, CLASSES, 2)


def sent(declared, *clients):
    """The sums of clients, each given as {label: features}; passes over their data are the method's own."""
    return reduce(add, (_sent_by_one(declared, held) for held in clients))


def _sent_by_one(declared, held):
    labels = torch.tensor([label for label, features in held.items() for _ in features], dtype=torch.int64)
    features = rows(*(feature for features in held.values() for feature in features))
    counts = torch.bincount(labels, minlength=CLASSES)
    step = StepView(**dict.fromkeys(StepView.__dataclass_fields__) | {
        "features": features, "labels": labels, "counts": counts,
    })  # fmt: skip
    passes = {each.name: each.of(step) for part in declared for each in part.passes}
    end = dict.fromkeys(EndView.__dataclass_fields__) | {"counts": counts, "passes": passes, "round": 0}
    return sums_of(declared, EndView(**end), 0)


FIRST = ({0: [(1, 0), (3, 4)], 1: [(0, 2)]}, {0: [(5, 2)]})
SECOND = ({1: [(4, 6), (2, 0)]}, {2: [(1, 1)]})


@pytest.mark.parametrize(("weight", "zeroth"), [("count", (3.0, 2.0)), ("uniform", (3.5, 2.0))])
@pytest.mark.parametrize("carry_over", [True, False])
def test_prototypes(weight, zeroth, carry_over):
    """Class 0: (1, 0), (3, 4) of A and (5, 2) of B. Their mean is (3, 2); that of (2, 2) and (5, 2) is (3.5, 2).

    Round 2: nobody holds class 0, whose prototype stays or is lost; A's (4, 6), (2, 0) make (3, 3) of class 1.
    """
    declared = (payloads.prototype_sum(weight),)
    state = ServerState({}, {}, {}, {"prototypes": no_prototypes(init_view())})
    first = update_prototypes(state, sent(declared, *FIRST), carry_over=carry_over)
    assert near(first.extra["prototypes"]["mean"], zeroth, (0.0, 2.0), (0.0, 0.0))
    assert first.extra["prototypes"]["has"].tolist() == [True, True, False]
    second = update_prototypes(first, sent(declared, *SECOND), carry_over=carry_over)
    kept = zeroth if carry_over else (0.0, 0.0)
    assert near(second.extra["prototypes"]["mean"], kept, (3.0, 3.0), (1.0, 1.0))
    assert second.extra["prototypes"]["has"].tolist() == [carry_over, True, True]


def test_fednh_prototypes():
    """Class 0: A has 3 samples along (0, 1), B has 4 along (1, 0); (4, 3) has the direction (0.8, 0.6).

    ρ = 0.5 and P_0 = (1, 0) give (0.9, 0.3), of length sqrt(0.9). Class 1: units (0.6, 0.8) and (−0.6, 0.8) have the
    mean direction (0, 1), whatever their lengths; it cancels P_1 = (0, −1), which stays. Nobody holds class 2.
    Round 2: (0.8, 0.6) meets P_2 = (0.6, 0.8) halfway, at 45 degrees.
    """
    declared = (fednh().sums[-1],)
    state = ServerState({"head.weight": rows((1, 0), (0, -1), (0.6, 0.8))}, {}, {})
    clients = {0: [(0, 1), (0, 5), (0, 2)], 1: [(6, 8), (-3, 4)]}, {0: [(1, 0), (7, 0), (2, 0), (3, 0)]}
    first = move_prototypes(state, sent(declared, *clients), rho=0.5)
    three_to_one = 0.9 / math.sqrt(0.9), 0.3 / math.sqrt(0.9)
    assert near(first.params["head.weight"], three_to_one, (0.0, -1.0), (0.6, 0.8))
    second = move_prototypes(first, sent(declared, {2: [(8, 6)]}, {2: [(0.4, 0.3)]}), rho=0.5)
    assert near(second.params["head.weight"], three_to_one, (0.0, -1.0), (A_HALF, A_HALF))


def test_fednh_at_nine_tenths():
    """0.9·(1, 0) + 0.1·(0, 1) has the length sqrt(0.82): (0.99388, 0.11043)."""
    state = ServerState({"head.weight": rows((1, 0), (1, 0), (1, 0))}, {}, {})
    new = move_prototypes(state, sent((fednh().sums[-1],), {0: [(0, 3)]}, {0: [(0, 1)]}), rho=0.9)
    assert near(new.params["head.weight"][:1], (0.993883734673619, 0.110431526074847), tolerance=1e-14)


def test_calibration_on_the_sphere():
    """Units (0.6, 0.8) of class 0 and (0, 1) of class 1; with ridge 0.2 the matrix is [[0.56, 0.48], [0.48, 1.84]].

    Its determinant is 0.8, its inverse [[2.3, −0.6], [−0.6, 0.7]]. (0.6, 0.8) times it is (0.9, 0.2), (0, 1) its second
    row. Nobody holds class 2, whose vector becomes 0.
    """
    (exchange,) = spherefed(calibrate=True, ridge=0.2).exchanges
    state = ServerState({}, {}, {"head.weight": torch.ones(CLASSES, DIM, dtype=torch.float64)})
    new = exchange.server(state, sent(exchange.sums, {0: [(3, 4)]}, {1: [(0, 2)]}))
    assert near(new.fixed["head.weight"], (0.9, 0.2), (-0.6, 0.7), (0.0, 0.0))


def test_ccvr_moments():
    """Class 0: (1, 0), (3, 2) of A and (5, 1) of B deviate from (3, 1) by (−2, −1), (0, 1), (2, 0): [[8, 2], [2, 2]]/2.

    Class 2: (0, 0), (0, 2) of B. Class 1 has one sample and is left out.
    """
    (exchange,) = ccvr().exchanges
    moments = sent(exchange.sums, {0: [(1, 0), (3, 2)], 1: [(9, 9)]}, {0: [(5, 1)], 2: [(0, 0), (0, 2)]})["moments"]
    mean, covariance = class_gaussian(moments, 0)
    assert near(mean, 3.0, 1.0)
    assert near(covariance, (4.0, 1.0), (1.0, 1.0))
    mean, covariance = class_gaussian(moments, 2)
    assert near(mean, 0.0, 1.0)
    assert near(covariance, (0.0, 0.0), (0.0, 2.0))
    features, labels = virtual_features(moments, 20_000, torch.Generator().manual_seed(0))
    assert labels.tolist() == [0] * 20_000 + [2] * 20_000
    assert near(features[:20_000].mean(0), 3.0, 1.0, tolerance=0.05)
    assert near(features[:20_000].T.cov(), (4.0, 1.0), (1.0, 1.0), tolerance=0.1)


def test_ccvr_moves_the_head_alone():
    """Samples of a class all alike are drawn again but for 0.001 of noise: (3, 0) of class 0 and (0, 3) of class 1.

    A head of zeros says 1/3 for every class. The mean gradient of row 0 is −(2/3)(1.5, 0) + (1/3)(0, 1.5) = (−1, 0.5),
    that of row 1 (0.5, −1), that of row 2 (0.5, 0.5); of the bias −1/6, −1/6, 1/3. One step at 0.5.
    """
    (exchange,) = ccvr(samples_per_class=1, epochs=1, lr=0.5).exchanges
    body = {"body.weight": rows((1.0, 2.0))}
    params = body | {"head.weight": torch.zeros(CLASSES, DIM).double(), "head.bias": torch.zeros(CLASSES).double()}
    state = ServerState(params, {}, {}, {"seed": {"value": torch.tensor(1)}})
    new = exchange.server(state, sent(exchange.sums, {0: [(3, 0)] * 2, 1: [(0, 3)]}, {1: [(0, 3)] * 2})).params
    assert near(new["head.weight"], (0.5, -0.25), (-0.25, 0.5), (-0.25, -0.25), tolerance=0.005)
    assert near(new["head.bias"], 1 / 12, 1 / 12, -1 / 6, tolerance=1e-12)
    assert torch.equal(new["body.weight"], body["body.weight"])


def test_label_shares():
    """Of class 0 the clients hold 3 and 1, of class 2 they hold 1 and 4; nobody holds class 1."""
    assert near(label_shares(rows((3, 0, 1), (1, 0, 4))), (0.75, 0.0, 0.2), (0.25, 0.0, 0.8))


def test_adam():
    """w = 1 and a gradient of 0.99 with decay 0.01 make 1: moments 0.1 and 0.001, a step of the full rate to 0.9.

    Then −2.009 + 0.009 = −2: moments −0.11 and 0.004999, corrected −0.11/0.19 and 0.004999/0.001999 = 1.581376²;
    0.578947/1.581376 = 0.366104 of the rate upwards.
    """
    tensors, moments = {"w": rows(1.0)}, {"first.w": rows(0.0), "second.w": rows(0.0), "steps": torch.tensor(0)}
    tensors, moments = adam(tensors, {"w": rows(0.99)}, moments, lr=0.1, weight_decay=0.01)
    assert near(tensors["w"], 0.9, tolerance=2e-9)
    assert near(moments["first.w"], 0.1)
    assert near(moments["second.w"], 0.001)
    tensors, moments = adam(tensors, {"w": rows(-2.009)}, moments, lr=0.1, weight_decay=0.01)
    assert near(tensors["w"], 0.9366103527, tolerance=1e-8)
    assert near(moments["first.w"], -0.11, tolerance=1e-10)
    assert near(moments["second.w"], 0.004999, tolerance=1e-10)
    assert moments["steps"] == 2


def training(**changes):
    plain = {"alpha_s": 1.0, "eta_s": 0.5, "beta_s": 0.0, "n_it": 1, "gen_batch": 4, "lr": 0.1}
    return GeneratorTraining(FeatureGenerator(nz=1, hid=3), **plain | changes)


def test_the_loss_of_the_generator():
    """A's classifier says (3/4, 1/4) of the feature 1, B's (1/2, 1/2); both say (1/2, 1/2) of the feature 0.

    Label 0 of the former, of which A holds 3/4: 0.75·ln(4/3) + 0.25·ln 2 = 0.389048. Label 1 of the latter: ln 2.
    Codes 1 apart and features 1 apart for two of four pairs: exp(−1/2). 0.541098 + 0.5·0.606531.
    """
    heads = {
        "weight": rows(((math.log(3.0),), (0.0,)), ((0.0,), (0.0,))),
        "bias": rows((0.0, 0.0), (0.0, 0.0)),
        "counts": rows((3, 1), (1, 1)),
    }
    value = training().loss(rows((1.0,), (0.0,)), rows((0.0,), (1.0,)), torch.tensor([0, 1]), heads, {})
    assert value.item() == pytest.approx(0.8443630949, abs=1e-9)


def test_the_first_step_of_the_generator_is_one_rate_long():
    """Adam's first step moves each number of the last layer by the rate, 0.1·0.98² in round 2."""
    generator, view = FeatureGenerator(nz=1, hid=3), init_view()
    view = InitView(view.params, DIM, CLASSES, 2, streams=Streams(1))
    extra = {"generator": generator.init(view), "adam": no_moments(generator, view), "seed": run_seed(view)}
    state = ServerState({}, {}, {}, extra, round=2)
    head = {"weight": rows(((1, 0), (0, 1), (1, 1))), "bias": rows((0, 0, 0)), "counts": rows((2, 3, 2))}
    new = training()(state, Sums({"heads": head})).extra
    assert new["adam"]["steps"] == 1
    for name in ("out.weight", "out.bias"):
        moved = (new["generator"][name] - extra["generator"][name]).abs()
        torch.testing.assert_close(moved, torch.full_like(moved, 0.09604), rtol=0, atol=1e-6)


SHARED = {"A": (16, 9, 0), "B": (0, 75, 0)}


@pytest.mark.parametrize(
    ("phi", "reference", "own"),
    [
        ("sqrt", (0.2, 0.9, 0.0), {"A": (4.0, 2 / 3, 0.0), "B": (0.0, 10 / 9, 0.0)}),
        (
            "exp",
            (1.2241202198, 2.3970437250, 1.0),
            {"A": (1.5492603166, 0.5979571418, 1.0), "B": (0.8169132278, 1.1340142861, 1.0)},
        ),
    ],
)
def test_the_reference_of_fedgela(phi, reference, own):
    """A has 25 samples, shares (0.64, 0.36, 0), B 75 with shares (0, 1, 0); a quarter of A's Q and three of B's.

    Roots: 0.25·0.8, 0.25·0.6 + 0.75, 0. Exponentials: 0.25·e^0.64 + 0.75, 0.25·e^0.36 + 0.75·e, 1.
    """
    method = fedgela(phi=phi)
    (exchange,) = method.exchanges
    clients = [{label: [(0, 0)] * count for label, count in enumerate(counts)} for counts in SHARED.values()]
    state = ServerState({}, {}, {}, {"phi": method.server_state["phi"](init_view())})
    found = exchange.server(state, sent(exchange.sums, *clients)).extra["phi"]["reference"]
    assert near(found, *reference, tolerance=1e-9)
    for name, counts in SHARED.items():
        assert near(adaptation(torch.tensor(counts), phi, found), *own[name], tolerance=1e-9)


def test_fedgela_by_shares_asks_for_nothing():
    """Φ = 3·n_c/n needs no other client: (1.92, 1.08, 0)."""
    assert fedgela().exchanges == ()
    assert near(adaptation(torch.tensor(SHARED["A"]), "identity"), 1.92, 1.08, 0.0)
