"""Clients' own models at the end of a run: how they are tuned, on what they are measured, what is said of them."""

import json
from dataclasses import replace
from statistics import fmean, pstdev

import numpy as np
import pytest
import torch

from fedblade.core.lengths import PhasePlan
from fedblade.core.method import Own, model
from fedblade.core.phase import Phase, Sgd
from fedblade.core.problem import PERSONAL
from fedblade.core.registry import Entry
from fedblade.core.state import MemoryStore
from fedblade.core.tensorfile import read_tensors
from fedblade.data import Dataset, Part
from fedblade.methods import Composition, compose
from fedblade.methods.fedavg import fedavg
from fedblade.personal import finetuned, local_model
from fedblade.runs import Driver, RunListener, _tuning, execute, load_config, prepare, tuning_stages
from fedblade.runs._client_records import spread
from fedblade.runs._summary import summarise
from fedblade.runs._tuning import GAPA_EPOCHS, measure_clients
from support.one_client import adapt_client

KEYS = {
    "dataset": "object", "partition": "dirichlet", "alpha": 0.5, "min_size": 8, "model": "mlp", "hidden": [8], "dim": 6,
    "method": "fedavg", "num_clients": 6, "clients_per_round": 3, "rounds": 3, "epochs": 1, "batch_size": 8, "lr": 0.1,
    "device": "cpu", "dtype": "float64", "test_split": "matched", "seed": 4,
}  # fmt: skip
NO_TIMES = {"seconds": 0, "wall_seconds": 0}


def dataset():
    """Four classes, their centres one after another on a line."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 4
    x = rng.normal(size=(400, 5)) + 1.2 * labels[:, None]
    return Dataset("made", Part(x[:240], labels[:240]), Part(x[240:], labels[240:]), 4)


def configure(method="fedavg", **changes):
    name = method if isinstance(method, str) else "fedavg"
    config, _ = load_config(None, KEYS | {"method": name} | changes)
    if isinstance(method, str):
        return config
    return replace(config, method=Composition("value", Entry("value", lambda: method), ()), method_knobs={})


def ran(method="fedavg", listener=None, **changes):
    """The set-up and the driver of a finished run."""
    setup = prepare(configure(method, **changes), dataset())
    driver = Driver(setup, None, listener or RunListener())
    driver.run()
    return setup, driver


def summary(setup, driver):
    return summarise(setup, driver.history, "finished", driver.clients)


def accuracy(setup, params, buffers, client, fixed=None):
    """Percent of a client's own samples that a model gets right."""
    samples = setup.test if setup.clients.source == "test" else replace(setup.problem.samples, augment=None)
    x, y = samples.batch(torch.from_numpy(setup.clients.part(client)))
    z = setup.problem.network.features(params, buffers, x, training=False)
    logits = setup.problem.network.output(params, fixed or {}, z).logits
    return 100 * (logits.argmax(1) == y).double().mean().item()


def tuned(setup, state, client, phases, epochs, own=None, first_epoch=0, lr=0.1):
    """A client's own model, trained by the one local loop."""
    plans = tuple(PhasePlan(epochs, phase.steps, phase.paired, phase.track) for phase in phases)
    task = setup.planner.task(setup.config.federation.rounds, client, plans, first_epoch)
    return adapt_client(setup.problem, state, task, own, lr, phases).state


PLAIN, FEDPER = fedavg(), replace(fedavg(), personal=("head",))
HEAD = (Phase(trains=("head",), epochs=2),)
TEN = (tuple(replace(phase, epochs=GAPA_EPOCHS) for phase in PLAIN.phases),)
TUNED_HEAD = replace(PLAIN, own=Own(finetune=HEAD))
TWO_STAGES = ((Phase(epochs=1),), (Phase(trains=("head",), epochs=2, sgd=Sgd(lr=0.3)),))
OTHERS = ("last10", "last5", "final", "domain")


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (PLAIN, {"ft": (), "gapa": TEN, "pers_etf": (PLAIN.phases,), **dict.fromkeys(OTHERS)}),
        (
            finetuned(PLAIN),
            {
                "ft": (PLAIN.phases,), "gapa": TEN, "pers_etf": (PLAIN.phases,),
                **dict.fromkeys(OTHERS, (PLAIN.phases,)),
            },
        ),
        (FEDPER, {"ft": (), "gapa": (), "pers_etf": (FEDPER.phases,), **dict.fromkeys(OTHERS, ())}),
        (finetuned(FEDPER), {"ft": (PLAIN.phases,), "gapa": (), **dict.fromkeys(OTHERS, (PLAIN.phases,))}),
        (
            TUNED_HEAD,
            {
                "ft": (), "gapa": ((replace(HEAD[0], epochs=GAPA_EPOCHS),),), "pers_etf": (PLAIN.phases,),
                **dict.fromkeys(OTHERS),
            },
        ),
        (finetuned(TUNED_HEAD), {"ft": (HEAD,), **dict.fromkeys(OTHERS, (HEAD,))}),
        (
            replace(PLAIN, own=Own(tuning={"pers_etf": TWO_STAGES, "gapa": TWO_STAGES[:1]})),
            {"pers_etf": TWO_STAGES, "gapa": TWO_STAGES[:1], "ft": (), **dict.fromkeys(OTHERS)},
        ),
    ],
    ids=["plain", "plain-ft", "personal", "personal-ft", "head", "head-ft", "own_stages"],
)  # fmt: skip
def test_protocols_say_how_own_models_are_tuned(method, expected):
    assert {protocol: tuning_stages(method, protocol) for protocol in expected} == expected


@pytest.mark.parametrize(
    ("name", "base", "added", "is_tuned"),
    [
        ("fedavg", "fedavg", [], False),
        ("fedavg-ft", "fedavg", [], True),
        ("fedavg+feddecorr", "fedavg", ["feddecorr"], False),
        ("fedavg-ft+feddecorr", "fedavg", ["feddecorr"], True),
        ("fedavg+feddecorr-ft", "fedavg", ["feddecorr"], True),
    ],
)
def test_names_say_whether_clients_fine_tune(name, base, added, is_tuned):
    found = compose(name)
    assert (found.base.name, [entry.name for entry in found.added], found.tuned) == (base, added, is_tuned)
    method = found.build({})
    assert ("ft" in method.own.tuning) == is_tuned
    if is_tuned:
        assert method.own.tuning["ft"] == (method.phases,)


@pytest.mark.parametrize("suffix", ["", "-ft", "+feddecorr", "-ft+feddecorr"])
def test_a_method_in_a_file_may_be_fine_tuned(tmp_path, suffix):
    path = tmp_path / "mine.py"
    path.write_text("from fedblade.methods.fedavg import fedavg\n\n\ndef mine():\n    return fedavg()\n")
    found = compose(f"{path}:mine{suffix}")
    assert found.tuned == ("-ft" in suffix)
    assert [entry.name for entry in found.added] == (["feddecorr"] if "feddecorr" in suffix else [])
    assert ("ft" in found.build({}).own.tuning) == found.tuned


def test_fine_tuning_changes_no_round():
    """The last name only says what happens after the run."""
    (_, plain), (_, other) = ran("fedavg"), ran("fedavg-ft")
    for a, b in zip(plain.history, other.history, strict=True):
        assert {**a, **NO_TIMES} == {**b, **NO_TIMES}
    assert [sum("accuracy" in record for record in ran_.clients) for ran_ in (plain, other)] == [0, 6]


def test_fine_tuned_models_are_those_of_the_local_loop():
    """Protocol `ft`: every client, the final model, the run's epochs and last rate."""
    setup, driver = ran("fedavg-ft", schedule="step", protocol="ft")
    rate = setup.config.optimizer.rate(2, 3)
    assert rate != 0.1
    for row in driver.clients:
        own = tuned(setup, driver.state, row["client"], PLAIN.phases, 1, lr=rate)
        assert own[PERSONAL].keys() == driver.state.params.keys()
        assert row["accuracy"] == pytest.approx(accuracy(setup, own[PERSONAL], {}, row["client"]), abs=1e-10)
    found = summary(setup, driver)
    assert found["accuracy"] == found["personal_accuracy"] == fmean(row["accuracy"] for row in driver.clients)
    assert found["final_accuracy"] == driver.history[-1]["test_accuracy"]


def test_rows_tell_what_a_client_holds():
    setup, driver = ran("fedavg-ft")
    split = setup.clients
    assert [row["client"] for row in driver.clients] == list(range(6))
    for row in driver.clients:
        counts = split.train.counts(row["client"], 0)
        facts = {"client", "train_samples", "num_classes", "test_samples"}
        assert row.keys() == facts | {"accuracy", "global_accuracy"}
        expected = accuracy(setup, driver.state.params, {}, row["client"])
        assert row["global_accuracy"] == pytest.approx(expected, abs=1e-10)
        assert (row["train_samples"], row["num_classes"]) == (counts.sum(), (counts > 0).sum())
        assert row["test_samples"] == len(split.part(row["client"]))
    assert len({row["accuracy"] for row in driver.clients}) > 1


def test_without_tuning_the_global_model_is_measured_on_own_samples():
    setup, driver = ran(protocol="ft")
    for row in driver.clients:
        expected = accuracy(setup, driver.state.params, {}, row["client"])
        assert row["accuracy"] == pytest.approx(expected, abs=1e-10)


def test_protocols_that_print_a_global_model_measure_no_own_one():
    setup, driver = ran(protocol="final")
    assert [row.keys() & {"accuracy", "global_accuracy"} for row in driver.clients] == [{"global_accuracy"}] * 6
    assert "personal_accuracy" not in summary(setup, driver)


def test_own_models_are_measured_after_each_stage():
    setup, driver = ran(replace(PLAIN, own=Own(tuning={"pers_etf": TWO_STAGES})), protocol="pers_etf")
    for row in driver.clients:
        first = tuned(setup, driver.state, row["client"], TWO_STAGES[0], 1)
        second = tuned(setup, driver.state, row["client"], TWO_STAGES[1], 2, own=first, first_epoch=1)
        curve = [accuracy(setup, own[PERSONAL], {}, row["client"]) for own in (first, second)]
        assert row["curve"] == pytest.approx(curve, abs=1e-10)
        assert row["accuracy"] == row["curve"][-1]
    found = summary(setup, driver)
    means = [fmean(row["curve"][stage] for row in driver.clients) for stage in (0, 1)]
    assert found["personal_curve"] == pytest.approx(means)
    assert found["personal_accuracy"] == pytest.approx(means[-1])


@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_chunks_do_not_change_results(chunk, monkeypatch):
    method = replace(FEDPER, own=Own(tuning={"pers_etf": TWO_STAGES}))
    _, expected = ran(method, protocol="pers_etf")
    monkeypatch.setattr(_tuning, "CHUNK", chunk)
    _, found = ran(method, protocol="pers_etf")
    assert found.clients == expected.clients


def test_what_is_done_is_not_done_again():
    setup, driver = ran("fedavg-ft")
    stages = tuning_stages(setup.method, "ft")
    rows = list(measure_clients(setup, driver.state, MemoryStore(), stages, {0, 2, 5}))
    assert rows == [row for row in driver.clients if row["client"] in (1, 3, 4)]


def test_own_models_go_on_from_the_state_that_clients_kept():
    """FedPer with one more update: each client's own head on the shared body."""
    setup, driver = ran(FEDPER, protocol="pers_etf")
    for row in driver.clients:
        kept = driver._store.get(row["client"], 3)
        own = tuned(setup, driver.state, row["client"], FEDPER.phases, 1, own=kept)
        assert row["accuracy"] == pytest.approx(accuracy(setup, own[PERSONAL], {}, row["client"]), abs=1e-10)


KEPT = replace(PLAIN, client_state={"mine": model}, client_update={"mine": local_model}, own=Own(state="mine"))


def test_a_model_in_the_state_is_the_own_model():
    setup, driver = ran(KEPT, rounds=1)
    trained = set(driver.history[0]["clients"])
    assert 0 < len(trained) < 6
    for row in driver.clients:
        kept = driver._store.get(row["client"], 1)
        params = driver.state.params if kept is None else kept["mine"]
        assert (kept is not None) == (row["client"] in trained)
        assert row["accuracy"] == pytest.approx(accuracy(setup, params, {}, row["client"]), abs=1e-10)


def test_own_predictions_see_the_clients_counts():
    """A client that always says its largest class is right as often as that class is among its samples."""
    largest = Own(logits=lambda view: view.counts.to(view.logits).expand_as(view.logits))
    setup, driver = ran(replace(PLAIN, own=largest))
    for row in driver.clients:
        client = row["client"]
        labels = setup.dataset.test.labels[setup.clients.part(client)]
        expected = 100 * (labels == setup.clients.train.counts(client, 0).argmax()).mean()
        assert row["accuracy"] == pytest.approx(expected, abs=1e-10)
    assert driver.history[-1]["test_accuracy"] != pytest.approx(fmean(row["accuracy"] for row in driver.clients))


def test_spread_over_clients():
    values = [float(v) for v in np.random.default_rng(0).permutation(25)]
    rows = [{"accuracy": v} for v in values] + [{"accuracy": None}] * 3
    found = spread(rows)
    assert found == {
        "personal_accuracy": 12.0,
        "personal_std": pstdev(values),
        "personal_worst_decile": 0.5,
        "personal_min": 0.0,
        "clients_without_test_samples": 3,
    }


def test_the_worst_tenth_is_at_least_one_client():
    assert spread([{"accuracy": 10.0}, {"accuracy": 40.0}])["personal_worst_decile"] == 10.0
    assert spread([{"accuracy": float(v)} for v in range(19)])["personal_worst_decile"] == 0.0
    assert spread([{"accuracy": float(v)} for v in range(20)])["personal_worst_decile"] == 0.5


def test_without_any_value_nothing_is_said():
    assert spread([{"accuracy": None}]) == {}
    assert spread([]) == {}


def test_clients_without_test_samples_are_left_out_and_counted():
    setup, driver = ran(finetuned(PLAIN), protocol="ft")
    clients = setup.clients
    sizes = clients.sizes()
    kept = np.repeat(np.arange(6), sizes)
    sizes[[1, 4]] = 0
    without = replace(
        clients, order=clients.order[~np.isin(kept, [1, 4])], offsets=np.concatenate([[0], np.cumsum(sizes)])
    )
    lacking = replace(setup, clients=without)
    stages = tuning_stages(setup.method, "ft")
    rows = list(measure_clients(lacking, driver.state, MemoryStore(), stages, set()))
    for row, full in zip(rows, driver.clients, strict=True):
        gone = row["client"] in (1, 4)
        assert row == (full | {"test_samples": 0, "accuracy": None, "global_accuracy": None} if gone else full)
    found = summarise(lacking, driver.history, "finished", rows)
    assert found["clients_without_test_samples"] == 2
    assert found["accuracy"] == fmean(row["accuracy"] for row in driver.clients if row["client"] not in (1, 4))


@pytest.mark.parametrize("split", ["global", "matched", "proportional", "holdout"])
def test_own_models_are_measured_on_the_clients_own_samples(split):
    setup, driver = ran("fedavg-ft", test_split=split)
    assert [row["test_samples"] for row in driver.clients] == setup.clients.sizes().tolist()
    for row in driver.clients:
        own = tuned(setup, driver.state, row["client"], PLAIN.phases, 1)
        expected = accuracy(setup, own[PERSONAL], {}, row["client"]) if row["test_samples"] else None
        assert row["accuracy"] == (None if expected is None else pytest.approx(expected, abs=1e-10))
        if split == "holdout":
            assert not np.isin(setup.clients.part(row["client"]), setup.clients.train.part(row["client"])).any()
    assert setup.clients.source == ("train" if split == "holdout" else "test")


def falling(states, rounds=3):
    """FedAvg whose server loses the model in the last round; `states` gets the state after every step."""

    def server(state, sums):
        moved = PLAIN.server(state, sums)
        if state.round == rounds - 1:
            moved = moved.replace(params={name: torch.zeros_like(leaf) for name, leaf in moved.params.items()})
        states.append(moved.replace(round=state.round + 1))
        return moved

    return replace(PLAIN, server=server)


def best_round(driver):
    values = [row["test_accuracy"] for row in driver.history]
    return values.index(max(values))


def test_gapa_tunes_the_best_model():
    states = []
    setup, driver = ran(falling(states), protocol="gapa")
    best = best_round(driver)
    assert best < 2
    assert driver.history[-1]["test_accuracy"] < driver.history[best]["test_accuracy"]
    for row in driver.clients:
        own, last = (tuned(setup, states[round_], row["client"], PLAIN.phases, 10) for round_ in (best, 2))
        assert row["accuracy"] == pytest.approx(accuracy(setup, own[PERSONAL], {}, row["client"]), abs=1e-10)
        assert not torch.equal(own[PERSONAL]["head.weight"], last[PERSONAL]["head.weight"])
    found = summary(setup, driver)
    assert found["accuracy"] == found["general_accuracy"] == driver.history[best]["test_accuracy"]
    assert found["general_final_accuracy"] == found["final_accuracy"] == driver.history[-1]["test_accuracy"]
    values = [row["accuracy"] for row in driver.clients]
    assert found["personal_accuracy"] == found["personal_final_accuracy"] == fmean(values)
    assert found["personal_std"] == found["personal_final_std"] == pstdev(values)
    assert not any("best_accuracy" in row for row in driver.clients)


def test_gapa_keeps_the_first_of_equal_models():
    still = replace(PLAIN, phases=(Phase(sgd=Sgd(lr=0.0)),))
    _, driver = ran(still, protocol="gapa")
    assert len({row["test_accuracy"] for row in driver.history}) == 1
    assert driver._personal_models.best[0].round == 1


def test_gapa_measures_the_models_that_clients_have_each_round():
    setup, driver = ran(FEDPER, protocol="gapa")
    values = [row["personal_accuracy"] for row in driver.history]
    kept = [driver._store.get(client, 3) or {} for client in range(6)]
    params = [driver.state.params | own.get(PERSONAL, {}) for own in kept]
    expected = [accuracy(setup, params[client], {}, client) for client in range(6)]
    assert values[-1] == pytest.approx(fmean(expected), abs=1e-10)
    found = summary(setup, driver)
    assert found["personal_final_accuracy"] == pytest.approx(values[-1], abs=1e-10)
    assert found["accuracy"] == found["general_accuracy"] == max(row["test_accuracy"] for row in driver.history)
    assert [row["accuracy"] for row in driver.clients] == pytest.approx(expected, abs=1e-10)


ALONE = replace(FEDPER, accuracy_of="personal")
GAPA = {"protocol": "gapa", "rounds": 5, "lr": 1.0, "clients_per_round": 2}


def after_each_round(method, **changes):
    """Accuracies [round, client] on own samples and on everyone's, from runs that end after each round."""
    own, general = [], []
    for rounds in range(1, GAPA["rounds"] + 1):
        setup, driver = ran(method, **GAPA | {"rounds": rounds} | changes)
        kept = [driver._store.get(client, rounds) or {} for client in range(6)]
        params = [driver.state.params | each.get(PERSONAL, {}) for each in kept]
        own.append([accuracy(setup, params[client], {}, client) for client in range(6)])
        x, y = setup.test.batch(torch.arange(len(setup.dataset.test.labels)))
        network = setup.problem.network
        logits = [network.output(each, {}, network.features(each, {}, x, training=False)).logits for each in params]
        general.append([100 * (each.argmax(1) == y).double().mean().item() for each in logits])
    return np.array(own), np.array(general)


@pytest.mark.parametrize("method", [FEDPER, ALONE], ids=["global", "personal"])
def test_gapa_takes_every_client_at_its_own_best_round(method):
    """Runs with a constant rate that end earlier are the beginnings of the longer one."""
    own, general = after_each_round(method)
    setup, driver = ran(method, **GAPA)
    assert len(set(own.argmax(0))) > 1
    assert own.mean(1).max() < own.max(0).mean()
    assert [row["best_accuracy"] for row in driver.clients] == pytest.approx(own.max(0), abs=1e-10)
    assert [row["accuracy"] for row in driver.clients] == pytest.approx(own[-1], abs=1e-10)
    found = summary(setup, driver)
    assert found["personal_accuracy"] == pytest.approx(own.max(0).mean(), abs=1e-10)
    assert found["personal_final_accuracy"] == pytest.approx(own[-1].mean(), abs=1e-10)
    if method is ALONE:
        bests = [row["best_general_accuracy"] for row in driver.clients]
        assert bests == pytest.approx(general.max(0), abs=1e-10)
        assert found["accuracy"] == found["general_accuracy"] == pytest.approx(general.max(0).mean(), abs=1e-10)
        assert found["general_accuracy"] > general.mean(1).max()
        assert found["general_final_accuracy"] == pytest.approx(general[-1].mean(), abs=1e-10)
    else:
        assert not any("best_general_accuracy" in row for row in driver.clients)
        assert found["accuracy"] == found["general_accuracy"] == max(row["test_accuracy"] for row in driver.history)


def test_rounds_that_are_not_evaluated_are_nobodys_best():
    own, _ = after_each_round(FEDPER)
    _, driver = ran(FEDPER, **GAPA, **{"evaluation.every": 2})
    seen = own[[1, 3, 4]].max(0)
    assert seen.tolist() != own.max(0).tolist()
    assert [row["best_accuracy"] for row in driver.clients] == pytest.approx(seen, abs=1e-10)


@pytest.mark.parametrize(
    ("method", "protocol", "key"),
    [
        ("fedavg", "gapa", "accuracy"),
        (FEDPER, "gapa", "best_accuracy"),
        (ALONE, "gapa", "best_accuracy"),
        ("fedavg-ft", "ft", "accuracy"),
        (ALONE, "ft", "accuracy"),
        ("fedavg", "pers_etf", "accuracy"),
        (ALONE, "pers_etf", "accuracy"),
    ],
)
def test_the_summary_is_of_the_values_that_the_rows_hold(method, protocol, key):
    """One set of values gives mean, deviation, worst tenth and minimum."""
    setup, driver = ran(method, **GAPA | {"protocol": protocol})
    found, values = summary(setup, driver), sorted(row[key] for row in driver.clients)
    assert found["personal_accuracy"] == pytest.approx(np.mean(values), abs=1e-10)
    assert found["personal_std"] == pytest.approx(np.std(values), abs=1e-10)
    assert found["personal_worst_decile"] == found["personal_min"] == values[0]
    assert found["clients_without_test_samples"] == 0
    if protocol == "gapa":
        final = [row["accuracy"] for row in driver.clients]
        assert found["personal_final_accuracy"] == pytest.approx(np.mean(final), abs=1e-10)
        assert found["personal_final_std"] == pytest.approx(np.std(final), abs=1e-10)
    else:
        assert not any("best_accuracy" in row for row in driver.clients)
        assert "personal_final_accuracy" not in found


def test_clients_without_test_samples_have_no_best():
    setup = prepare(configure(ALONE, **GAPA), dataset())
    clients = setup.clients
    sizes = clients.sizes()
    held = np.repeat(np.arange(6), sizes)
    sizes[2] = 0
    order, offsets = clients.order[held != 2], np.concatenate([[0], np.cumsum(sizes)])
    driver = Driver(replace(setup, clients=replace(clients, order=order, offsets=offsets)), None, RunListener())
    driver.run()
    assert [row["best_accuracy"] is None for row in driver.clients] == [client == 2 for client in range(6)]
    assert all(row["best_general_accuracy"] > 0 for row in driver.clients)
    found = summary(setup, driver)
    assert found["clients_without_test_samples"] == 1
    assert found["personal_accuracy"] == fmean(row["best_accuracy"] for row in driver.clients if row["client"] != 2)


def halved(state):
    return state.replace(params={name: leaf / 2 + 0.1 for name, leaf in state.params.items()})


def test_what_is_evaluated_is_measured_tuned_and_saved_but_not_trained_on(tmp_path):
    method = finetuned(replace(PLAIN, evaluated=halved))
    setup, driver = ran(method)
    plain = ran(finetuned(PLAIN))[1]
    for name, leaf in plain.state.params.items():
        assert torch.equal(driver.state.params[name], leaf)
    assert [row["test_accuracy"] for row in driver.history] != [row["test_accuracy"] for row in plain.history]
    shown = halved(driver.state)
    x, y = setup.test.batch(setup.test_order)
    z = setup.problem.network.features(shown.params, {}, x, training=False)
    right = setup.problem.network.output(shown.params, {}, z).logits.argmax(1) == y
    assert driver.history[-1]["test_accuracy"] == pytest.approx(100 * right.double().mean().item(), abs=1e-10)
    for row in driver.clients:
        own = tuned(setup, shown, row["client"], PLAIN.phases, 1)
        assert row["accuracy"] == pytest.approx(accuracy(setup, own[PERSONAL], {}, row["client"]), abs=1e-10)
    execute(configure(method), out=tmp_path / "run", dataset=dataset())
    saved, _ = read_tensors(tmp_path / "run" / "model.safetensors")
    for name, leaf in shown.params.items():
        assert torch.equal(saved[f"params/{name}"], leaf)


def test_gapa_keeps_the_evaluated_model():
    setup, driver = ran(replace(PLAIN, evaluated=halved), protocol="gapa", rounds=1)
    shown = halved(driver.state)
    for row in driver.clients:
        own = tuned(setup, shown, row["client"], PLAIN.phases, 10)
        assert row["accuracy"] == pytest.approx(accuracy(setup, own[PERSONAL], {}, row["client"]), abs=1e-10)


def test_every_client_takes_part_where_the_method_says_so():
    _, driver = ran(replace(PLAIN, participation="all"))
    assert [row["clients"] for row in driver.history] == [list(range(6))] * 3
    _, all_by_setting = ran(clients_per_round=6)
    for a, b in zip(driver.history, all_by_setting.history, strict=True):
        assert {**a, **NO_TIMES} == {**b, **NO_TIMES}


class Counts(RunListener):
    """Remembers how far the tuning was."""

    def __init__(self):
        self.told = []

    def on_personal_model(self, done, total):
        self.told.append((done, total))


def test_progress_is_told():
    listener = Counts()
    ran("fedavg-ft", listener)
    assert listener.told == [(done, 6) for done in range(7)]


def test_rows_are_written_and_read_back(tmp_path):
    first = execute(configure("fedavg-ft", protocol="ft"), out=tmp_path / "run", dataset=dataset())
    lines = [json.loads(line) for line in (tmp_path / "run" / "clients.jsonl").read_text().splitlines()]
    assert lines == list(first.clients) == ran("fedavg-ft", protocol="ft")[1].clients
    again = execute(configure("fedavg-ft", protocol="ft"), out=tmp_path / "run", resume=True, dataset=dataset())
    assert list(again.clients) == lines
    stored = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert stored["personal_accuracy"] == stored["accuracy"] == fmean(row["accuracy"] for row in lines)


def test_a_run_without_own_models_writes_the_accuracy_of_the_global_one(tmp_path):
    result = execute(configure(protocol="final"), out=tmp_path / "run", dataset=dataset())
    lines = [json.loads(line) for line in (tmp_path / "run" / "clients.jsonl").read_text().splitlines()]
    assert lines == list(result.clients)
    again = execute(configure(protocol="final"), out=tmp_path / "run", resume=True, dataset=dataset())
    assert list(again.clients) == lines
