"""A card says what the method, its presets and a real run say."""

import tomllib
from dataclasses import asdict, replace
from importlib import resources

import numpy as np
import pytest
import torch

import fedblade
from fedblade.cards import make_card
from fedblade.config.run_config import knob_tables
from fedblade.core.method import Exchange, Method, Own
from fedblade.core.phase import Lookahead, Phase, Sgd
from fedblade.core.registry import methods
from fedblade.core.sums import Sum
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedprox import fedprox
from support.for_every import for_every

COMBINATIONS = ["fedavg+feddecorr", "fedprox+feddecorr+lddecorr", "fedetf-ft"]
PAPERS = resources.files("fedblade.presets") / "files" / "papers"


def each_apart() -> Method:
    """Show the server every client.

    Server: averaging, whatever it sees besides.
    """
    norm = Sum("norms", lambda view: {"norm": torch.tensor(float(view.num_steps))}, bound=1e3, reduce="each")
    return replace(fedavg(), sums=(*fedavg().sums, norm))


def silent() -> Method:
    """Send nothing."""
    return replace(fedavg(), sums=(), personal=("body", "head"), buffers="local", accuracy_of="personal")


def busy() -> Method:
    """Use everything a phase offers."""
    base = fedprox(mu=0.5)
    first = Phase(
        trains=("head",), epochs=1, steps=2, sgd=Sgd(lr=0.5, momentum=0.0), statistics="keep",
        lookahead=Lookahead(move=lambda view: view.params, losses=base.losses[:1], fresh_batch=True),
    )  # fmt: skip
    second = Phase(trains=("body",), losses=base.losses[1:], group_sgd={"body": Sgd(weight_decay=0.1)})
    count = Sum("samples", lambda view: {"n": torch.tensor(float(view.num_samples))}, bound=1e6)
    return replace(
        base,
        phases=(first, second),
        exchanges=(Exchange("after_run", (count,), lambda state, sums: state),),
        own=Own(tuning={"pers_etf": ((second,), (first, second), (first, second))}),
    )


def own(name: str) -> str:
    """A method of this file, by reference."""
    return f"{__file__}:{name}"


def test_bytes_of_fedavg_by_hand():
    stages, linear, head = (16 * 9 + 2 * 16) + (32 * 16 * 9 + 2 * 32), 128 * 128 + 128, 10 * 128 + 10
    traffic = make_card("fedavg").traffic
    up = {each.name: each.bytes for each in traffic.up_model}
    weights, statistics = 4 * (stages + linear + head), 4 * 2 * (16 + 32)
    assert up == {"delta": weights, "buffers": statistics, "counters": 2 * 4, "weight": 4}
    # Counters of batches are whole numbers of eight bytes on their way down.
    assert traffic.down_model == weights + statistics + 2 * 8
    assert (traffic.down_extra, traffic.up_extra, traffic.once, traffic.exchanges) == ((), (), (), ())


@pytest.mark.parametrize("name", [*methods.names(), *COMBINATIONS, own("busy"), own("silent")])
def test_bytes_are_those_of_a_real_run(name):
    """One client of the quickstart in one round, all classes on it, exchanges included."""
    images, labels = np.random.default_rng(0).random((20, 1, 8, 8), dtype=np.float32), np.arange(20) % 10
    sizes = {"num_clients": 1, "clients_per_round": 1, "rounds": 1, "epochs": 1, "partition": "iid"}
    summary = fedblade.run(method=name, dataset=(images, labels, images, labels), **sizes).summary
    traffic = make_card(name).traffic
    exchanged = sum(payload.bytes for each in traffic.exchanges for payload in each.up)
    assert traffic.bytes_up + exchanged == summary["bytes_up"]
    assert traffic.bytes_down + sum(each.bytes_down for each in traffic.exchanges) == summary["bytes_down"]


def test_what_repeats_the_model_is_the_methods_own():
    traffic = make_card("scaffold").traffic
    assert [each.name for each in traffic.up_extra] == ["c"]
    assert [each.name for each in traffic.down_extra] == ["c"]
    assert traffic.up_extra[0].bytes == traffic.up_model[0].bytes
    nova = make_card("fednova").traffic
    assert nova.up_model[0].name == "normalised"
    assert {each.name: each.bytes for each in nova.up_extra} == {"steps": 4, "step_range": 8}


def test_rows_of_classes_are_marked():
    (prototypes,) = make_card("fedblade").traffic.up_extra
    assert (prototypes.name, prototypes.by_class, prototypes.bytes) == ("prototypes", True, 4 * 10 * (128 + 1))


def test_state_in_bytes():
    kept, plain = make_card("scaffold").kept, make_card("fedavg").kept
    assert kept.server == kept.client == {"c": 90_600}
    assert plain.server == plain.client == {}
    alone = make_card(own("silent"))
    assert alone.kept.client == {"own parameters": 90_600, "own statistics": 4 * 96 + 2 * 8}
    assert alone.accuracy_of == "personal"


@for_every([*methods.names(), *COMBINATIONS])
def test_knobs_have_the_librarys_defaults(name):
    text = "\n".join(f"{knob.key} = {_toml(knob.default)}" for knob in make_card(name).knobs)
    assert tomllib.loads(text) == knob_tables(name)


def _toml(value):
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


@pytest.mark.parametrize("file", ["fedblade", "feddecorr", "fedgela", "fedetf", "feddr_plus"])
def test_knobs_name_the_papers_that_differ(file):
    """Every value in a paper's first block that is not the default is on the card under the paper's name."""
    raw = tomllib.loads((PAPERS / f"{file}.toml").read_text(encoding="utf-8"))
    told = 0
    for block in raw["blocks"].values():
        for name, settings in block.get("methods", {}).items():
            if name not in methods.names():
                continue
            knobs = {knob.key: knob for knob in make_card(name).knobs}
            for key, value in _leaves(settings):
                differs = value != knobs[key].default
                told += differs
                assert (value in knobs[key].presets.get(raw["paper"], ())) == differs, (name, key)
    assert told or file == "fedblade"


def _leaves(table, prefix=""):
    for key, value in table.items():
        yield from _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]


def test_what_a_preset_varies_on_purpose_is_not_its_setting():
    knobs = {knob.key: knob for knob in make_card("fedblade").knobs}
    assert knobs["gamma_pba"].presets == {}
    assert knobs["pba.tau"].presets == {}
    assert knobs["decorr.balance"].presets == {"quickstart": (0.1,)}
    assert {knob.key: knob.presets for knob in make_card("fedprox").knobs}["mu"] == {
        "FedDecorr": (0.001,), "FedDr+": (0.001,), "FedETF": (0.001,),
    }  # fmt: skip


def test_terms_have_their_library_strength_and_meaning():
    terms = {term.name: term for term in make_card("fedblade").terms}
    assert list(terms) == ["supervised", "decorr", "pa", "fa"]
    assert terms["decorr"].strength == "weight 0.005"
    assert all(term.on and len(term.meaning) > 20 for term in terms.values())


def test_phases_say_what_trains_for_how_long_and_how():
    first, second = make_card(own("busy")).phases
    assert (first.trains, first.lasts, first.terms) == (("head",), "1 epoch, at most 2 steps", ("supervised", "prox"))
    optimiser, look, statistics = first.remarks
    assert optimiser == "optimiser: lr 0.5, momentum 0"
    assert "second batch" in look
    assert look.endswith("the gradient of supervised")
    assert statistics == "normalisation statistics do not change"
    assert (second.trains, second.lasts, second.terms) == (("body",), "the run's epochs or steps", ("prox",))
    assert second.remarks == ("body: weight_decay 0.1",)
    assert [phase.trains for phase in make_card("fedblade").phases] == [("all parameters",)]


def test_own_models_by_protocol():
    told = make_card(own("busy")).own
    assert told.what == "none unless tuned"
    first = "body for the run's epochs or steps on prox (body: weight_decay 0.1); measured; "
    assert told.tuning["pers_etf"].startswith(first)
    assert "; measured; 2 times, measured every time: head for 1 epoch" in told.tuning["pers_etf"]
    assert told.tuning["gapa"].count("10 epochs") == 2
    assert told.tuning["other protocols"] == "not measured"
    assert make_card(own("silent")).own.what == "the client's own body and head and its own normalisation statistics"
    plain, tuned = make_card("fedavg").own.tuning, make_card("fedavg-ft").own.tuning
    assert plain["ft"] == "measured without tuning"
    assert tuned["ft"] == tuned["other protocols"] == "all parameters for the run's epochs or steps on supervised"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("fedavg", "yes, except counters (a maximum)"),
        ("fednova", "yes, except counters and step_range (maxima)"),
        (own("each_apart"), "no, because norms shows the server single clients"),
        (own("silent"), "nothing is sent"),
    ],
    ids=["fedavg", "fednova", "each", "nothing"],
)
def test_secure_sums(name, answer):
    assert make_card(name).secure.sentence == answer


def test_added_parts_are_told():
    assert make_card("fedavg").added == {}
    assert list(make_card("fedprox+feddecorr+lddecorr").added) == ["+feddecorr", "+lddecorr"]
    assert list(make_card("fedetf-ft").added) == ["-ft"]


def test_lines_of_the_docstring_that_were_cut_for_length_are_put_together():
    text = make_card("scaffold").text
    assert text[0].startswith("Objective: ")
    assert text[-1].startswith("Deviation: ")
    assert all(paragraph.endswith(".") for paragraph in text)
    assert make_card(own("each_apart")).text == ("Server: averaging, whatever it sees besides.",)
    assert make_card(own("silent")).text == ()


def test_a_card_is_the_same_twice():
    assert asdict(make_card("fedblade")) == asdict(make_card("fedblade"))
