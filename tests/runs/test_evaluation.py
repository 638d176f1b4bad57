"""What is measured: which samples, in which order, and where the exchanges at the end of a run are counted."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedblade.core.method import Exchange, Own
from fedblade.core.registry import Entry
from fedblade.core.state import MemoryStore
from fedblade.core.sums import Sum
from fedblade.core.tensorfile import read_tensors
from fedblade.data import Dataset, Part
from fedblade.methods import Composition
from fedblade.methods.fedavg import fedavg
from fedblade.runs import Driver, RunListener, execute, load_config, prepare, tuning_stages
from fedblade.runs._evaluation import evaluate
from fedblade.runs._summary import summarise
from fedblade.runs._tuning import measure_clients
from fedblade.studies._measures import FinishedRun, measure

KEYS = {
    "dataset": "object", "partition": "iid", "model": "mlp", "hidden": [8], "dim": 6, "method": "fedavg",
    "num_clients": 4, "clients_per_round": 2, "rounds": 3, "epochs": 5, "lr": 0.1, "device": "cpu",
}  # fmt: skip


def dataset():
    """Three classes in two domains, more training than test samples."""
    rng = np.random.default_rng(0)
    labels, groups = np.sort(np.arange(300) % 3), np.arange(300) % 2
    x = (rng.normal(size=(300, 5)) + labels[:, None]).astype(np.float32)
    test = np.arange(300) % 5 == 0
    parts = [Part(x[mine], labels[mine], groups[mine]) for mine in (~test, test)]
    return Dataset("made", *parts, 3)


def configure(method=None, **changes):
    config, _ = load_config(None, KEYS | changes)
    if method is None:
        return config
    return replace(config, method=Composition("value", Entry("value", lambda: method), ()), method_knobs={})


class Recorder:
    """An engine that remembers what was measured."""

    def __init__(self, engine):
        self.engine, self.shared, self.own = engine, [], {}

    def measure(self, state, samples, indices, passes):
        self.shared.append((samples, indices.numpy()))
        return self.engine.measure(state, samples, indices, passes)

    def measure_personal(self, state, clients, samples, passes):
        chosen = list(clients)
        for holder, indices in chosen:
            self.own.setdefault(holder.client, []).append((samples, indices.numpy()))
        return self.engine.measure_personal(state, chosen, samples, passes)


def measured(config):
    """The set-up of a configuration, the row of its initial model, and what was looked at for it."""
    setup = prepare(config, dataset())
    recorder = Recorder(setup.engine)
    row = evaluate(replace(setup, engine=recorder), setup.start, MemoryStore(), setup.metrics, {}).record
    return setup, row, recorder


PERSONAL = replace(fedavg(), personal=("head",), accuracy_of="personal")


@pytest.mark.parametrize("method", [None, PERSONAL], ids=["global", "personal"])
@pytest.mark.parametrize("split", ["global", "matched", "proportional", "holdout"])
def test_on_validation_only_samples_held_out_of_training_are_looked_at(method, split):
    changes = {"evaluation.on": "validation", "protocol": "domain", "test_split": split}
    if split == "proportional":
        changes |= {"partition": "dirichlet", "alpha": 10.0, "min_size": 10}
    setup, row, seen = measured(configure(method, **changes))
    looks = [*seen.shared, *(look for own in seen.own.values() for look in own)]
    trained = np.concatenate([setup.clients.train.part(k) for k in range(4)])
    assert looks
    for samples, indices in looks:
        assert samples.inputs is setup.problem.samples.inputs
        assert not np.isin(indices, trained).any()
    if method is None:
        groups = setup.dataset.train.groups
        assert [set(groups[indices]) for _, indices in seen.shared[1:]] == [{0}, {1}]
        assert row["domain_accuracy"].keys() == {"0", "1"}
    else:
        for client, own in seen.own.items():
            assert sorted(own[-1][1]) == sorted(setup.clients.part(client))
        assert 0 <= row["personal_accuracy"] <= 100


class Answers:
    """An engine whose clients' own models answer as they are told, client by client."""

    def __init__(self, confusions):
        self.confusions = confusions

    def measure_personal(self, state, clients, samples, passes):
        for holder, _ in clients:
            confusion = self.confusions[holder.client]
            right = {"count": confusion.sum(), "correct": confusion.diagonal().sum(), "loss": confusion.sum()}
            yield holder.client, {"accuracy": right, "confusion": {"confusion": confusion}}


def test_without_a_global_model_a_client_can_expect_what_its_own_model_does_for_its_own_labels():
    changes = {"partition": "dirichlet", "alpha": 0.3, "min_size": 5, "num_clients": 12, "metrics": ["classes"]}
    setup = prepare(configure(PERSONAL, **changes), dataset())
    torch.manual_seed(0)
    confusions = torch.randint(0, 9, (12, 3, 3)).to(torch.float64)
    confusions[3, 1] = 0  # A class that was not measured.
    engine = Answers(confusions)
    row = evaluate(replace(setup, engine=engine), setup.start, MemoryStore(), setup.metrics, {}).record
    expected = []
    for client, held in enumerate(setup.clients.train.table()):
        known = [c for c in range(3) if confusions[client, c].sum() > 0]
        right = [100 * float(confusions[client, c, c] / confusions[client, c].sum()) for c in known]
        mine = [int(held[c]) for c in known]
        if sum(mine):
            expected.append(sum(n * value for n, value in zip(mine, right, strict=True)) / sum(mine))
    assert len(set(expected)) > 8
    assert row["client_accuracy_mean"] == pytest.approx(np.mean(expected), rel=1e-12)
    assert row["worst_decile_accuracy"] == pytest.approx(min(expected), rel=1e-12)


@pytest.mark.parametrize("method", ["local_ce", "fedavg"])
def test_what_clients_can_expect_is_near_what_they_get(method):
    """A client's samples are few, so that the two agree roughly; with others' labels own models would be far off."""
    changes = {"rounds": 2, "num_clients": 8, "clients_per_round": 8, "test_split": "proportional"}
    made, _ = load_config(
        None, KEYS | changes | {"method": method, "partition": "dirichlet", "alpha": 0.2, "min_size": 10}
    )
    result = execute(made, dataset=dataset())
    row = result.history[-1]
    if method == "local_ce":
        assert row["client_accuracy_mean"] == pytest.approx(result.summary["personal_accuracy"], abs=10)
        assert row["client_accuracy_mean"] > row["test_accuracy"] + 15
    else:
        assert 0 <= row["worst_decile_accuracy"] <= row["client_accuracy_mean"] <= 100


def test_on_validation_each_clients_part_is_of_its_own_data():
    setup = prepare(configure(**{"evaluation.on": "validation"}), dataset())
    whole = prepare(configure(), dataset()).clients.train
    for client in range(4):
        held, kept = setup.clients.part(client), setup.clients.train.part(client)
        assert len(held) == len(whole.part(client)) // 10
        assert sorted([*held, *kept]) == sorted(whole.part(client))


@pytest.mark.parametrize("on", ["test", "validation"])
@pytest.mark.parametrize("method", [None, PERSONAL], ids=["global", "personal"])
def test_whatever_is_measured_is_in_a_fixed_shuffled_order(on, method):
    changes = {"evaluation.on": on, "protocol": "domain", "test_split": "matched", "num_clients": 3}
    looks = []
    for _ in range(2):
        _, _, seen = measured(configure(method, **changes))
        looks.append([*seen.shared, *(look for own in seen.own.values() for look in own)])
    for (samples, first), (_, second) in zip(*looks, strict=True):
        assert first.tolist() == second.tolist()
        labels = samples.labels[torch.from_numpy(first)].numpy()
        changes_of_class = int((np.diff(labels) != 0).sum())
        assert changes_of_class > len(set(labels)) - 1, labels


def test_a_domain_is_measured_whole_and_alone():
    setup, row, seen = measured(configure(protocol="domain"))
    groups = setup.dataset.test.groups
    for domain, (_, indices) in enumerate(seen.shared[1:]):
        assert sorted(indices) == np.flatnonzero(groups == domain).tolist()
    assert row["test_accuracy"] == pytest.approx(np.mean([*row["domain_accuracy"].values()]), abs=1e-9)


COUNTS = Sum("counts", lambda view: {"n": view.counts}, bound=1e6, by_class=True)


def calibrating(interrupt=()):
    """FedAvg that ends by making its head always say class 0; the exchange counts itself, and may be interrupted."""
    left = list(interrupt)

    def server(state, _sums):
        if left:
            raise left.pop()
        params = {key: value * 0 if key.startswith("head") else value for key, value in state.params.items()}
        return state.replace(params=params, extra={"times": {"n": state.extra["times"]["n"] + 1}})

    return replace(
        fedavg(),
        exchanges=(Exchange("after_run", (COUNTS,), server),),
        server_state={"times": lambda view: {"n": torch.zeros(1)}},
        broadcast=(),
        gauges={"times": lambda state: float(state.extra["times"]["n"])},
    )


def timeless(history):
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in history]


def test_exchanges_after_the_run_have_fields_of_their_own(tmp_path):
    ended = execute(configure(calibrating()), dataset=dataset(), out=tmp_path / "run")
    plain = execute(configure(fedavg()), dataset=dataset())
    assert [row["test_accuracy"] for row in ended.history] == [row["test_accuracy"] for row in plain.history]
    assert ended.summary["last10_accuracy"] == plain.summary["last10_accuracy"]
    assert ended.summary["best_accuracy"] == plain.summary["best_accuracy"]
    share = 100 * float((dataset().test.labels == 0).mean())
    assert ended.summary["final_accuracy"] == ended.history[-1]["calibrated_accuracy"] == pytest.approx(share)
    assert ended.summary["final_accuracy"] != ended.history[-1]["test_accuracy"]
    assert (ended.summary["calibrated"], plain.summary["calibrated"]) == (True, False)
    assert ended.history[-1]["calibrated_loss"] == pytest.approx(np.log(3), rel=1e-6)
    assert ended.summary["exchange_seconds"] == ended.history[-1]["exchange_seconds"] > 0
    assert ended.summary["seconds"] == sum(row["seconds"] for row in ended.history)
    assert ended.summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert not any(value.any() for key, value in ended.model.state_dict().items() if "head" in key)
    assert "exchange_seconds" not in plain.summary
    assert not any(key.startswith("calibrated") for row in plain.history for key in row)


def test_the_time_of_the_exchanges_is_not_that_of_the_last_round():
    method = calibrating()
    slow = method.exchanges[0].server
    exchange = replace(method.exchanges[0], server=lambda *given: (time.sleep(0.5), slow(*given))[1])
    result = execute(configure(replace(method, exchanges=(exchange,))), dataset=dataset())
    assert result.history[-1]["seconds"] < 0.5 <= result.summary["exchange_seconds"]


@pytest.mark.parametrize("protocol", ["last10", "last5", "final", "pers_etf", "gapa"])
def test_every_protocol_reports_the_model_after_the_exchanges(protocol):
    result = execute(configure(calibrating(), protocol=protocol, test_split="matched"), dataset=dataset())
    found, last = result.summary, result.history[-1]
    assert found["accuracy"] == found["final_accuracy"] == last["calibrated_accuracy"] != last["test_accuracy"]
    rounds = [row["test_accuracy"] for row in result.history]
    assert (found["last10_accuracy"], found["best_accuracy"]) == (pytest.approx(np.mean(rounds)), max(rounds))


def test_domains_are_those_of_the_model_after_the_exchanges():
    result = execute(configure(calibrating(), protocol="domain"), dataset=dataset())
    last = result.history[-1]
    assert result.summary["accuracy"] == pytest.approx(np.mean([*last["calibrated_domain_accuracy"].values()]))
    run = FinishedRun(result.history, result.summary)
    for domain, share in last["calibrated_domain_accuracy"].items():
        assert measure(f"domain {domain}", [[run]]).mean == share != last["domain_accuracy"][domain]
    assert measure("domain", [[run]]).mean == result.summary["accuracy"]


@pytest.mark.parametrize("how", ["last10", "last5", "final", "best"])
def test_tables_print_the_model_after_the_exchanges(how):
    ended, plain = (execute(configure(method), dataset=dataset()) for method in (calibrating(), fedavg()))
    values = [measure(how, [[FinishedRun(run.history, run.summary)]]).mean for run in (ended, plain)]
    assert values[0] == ended.history[-1]["calibrated_accuracy"]
    assert values[1] != values[0]


@pytest.mark.parametrize("calibrates", [True, False], ids=["calibrated", "plain"])
def test_gapa_tunes_the_model_after_the_exchanges(calibrates):
    """The best round is not the last here, and is tuned only where nothing is calibrated."""
    base = replace(fedavg(), server=worse_at_last)
    method = replace(calibrating(), server=worse_at_last) if calibrates else base
    setup = prepare(configure(method, protocol="gapa", test_split="matched"), dataset())
    driver = Driver(setup, None, RunListener())
    driver.run()
    found, last = summarise(setup, driver.history, "finished", driver.clients), driver.history[-1]
    rounds = [row["test_accuracy"] for row in driver.history]
    assert max(rounds) > rounds[-1]
    stages = tuning_stages(method, "gapa")
    expected = list(measure_clients(setup, driver.state, MemoryStore(), stages, set()))
    assert (driver.clients == expected) == calibrates
    assert found["general_accuracy"] == (last["calibrated_accuracy"] if calibrates else max(rounds))
    assert found["general_final_accuracy"] == (last["calibrated_accuracy"] if calibrates else rounds[-1])
    assert found["accuracy"] == found["general_accuracy"]


def worse_at_last(state, sums):
    moved = fedavg().server(state, sums)
    params = moved.params if state.round < 2 else {key: -value for key, value in moved.params.items()}
    return moved.replace(params=params)


def test_own_models_after_the_exchanges_have_no_best_round():
    """Clients with heads of their own: the exchanges leave other models than any round had."""
    method = replace(calibrating(), own=Own(logits=lambda view: view.logits + view.counts))
    result = execute(configure(method, protocol="gapa", test_split="matched"), dataset=dataset())
    values = [row["accuracy"] for row in result.clients]
    assert not any("best_accuracy" in row for row in result.clients)
    found, last = result.summary, result.history[-1]
    assert found["personal_accuracy"] == found["personal_final_accuracy"] == pytest.approx(np.mean(values))
    assert found["personal_accuracy"] == last["calibrated_personal_accuracy"] != last["personal_accuracy"]
    assert found["accuracy"] == found["general_accuracy"] == last["calibrated_accuracy"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_exchanges_that_are_cut_short_are_done_once_when_the_run_goes_on(tmp_path, error):
    whole = execute(configure(calibrating()), dataset=dataset(), out=tmp_path / "whole")
    config = configure(calibrating([error]))
    with pytest.raises(error):
        execute(config, dataset=dataset(), out=tmp_path / "cut")
    resumed = execute(config, dataset=dataset(), out=tmp_path / "cut", resume=True)
    assert timeless(resumed.history) == timeless(whole.history)
    assert timeless([resumed.summary]) == timeless([whole.summary])
    saved, _ = read_tensors(tmp_path / "cut" / "checkpoints" / "round-000003.safetensors")
    assert saved["extra/times/n"].item() == 1
    for key, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[key], value), key
