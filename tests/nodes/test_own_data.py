"""Nodes with data of their own: the model is that of one machine which has everything, and mistakes are told."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from runs import QUICK, Far, Leaving, config_of, digest, trained

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.data import as_dataset
from fedblade.experiment._setup import prepare
from fedblade.flower._app import split_tables
from fedblade.flower._data import own_clients, own_dataset
from fedblade.flower._node import Node
from fedblade.partitions import ClientTests
from fedblade.partitions._split import Split

CLASSES = ((0, 1, 2, 3), (3, 4, 5, 6, 7), (0, 6, 7, 8, 9))
"""What each ward sees: nobody sees everything, and one class is seen by one of them alone."""
APART = QUICK.model_copy(update={"data": "nodes", "num_classes": 10})
CHANGES = {"num_clients": 3, "clients_per_round": 3, "evaluation.every": 1, "evaluation.metrics": []}


@cache
def digits():
    from sklearn.datasets import load_digits

    data = load_digits()
    return data.images.astype(np.float32)[:, None] / 16, data.target.astype(np.int64)


@cache
def ward(number):
    """Training and test samples of one client."""
    inputs, labels = digits()
    mine = np.flatnonzero(np.isin(labels, CLASSES[number]))[number::3]
    train, test = mine[:-40], mine[-40 + 7 * number :]
    return inputs[train], labels[train], inputs[test], labels[test]


def together(parts, config):
    """A run of one machine that has the data of everyone."""
    whole = as_dataset(tuple(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    whole = replace(whole, num_classes=10)
    offsets = np.cumsum([0, *(len(part[1]) for part in parts)])
    split = Split(np.arange(len(whole.train)), offsets, whole.train.labels, 10)
    setup = prepare(config, whole, clients=ClientTests(split, "test", np.arange(len(whole.test))))
    return trained(replace(setup, engine=Leaving(setup.engine, {})))


def saved(folder, parts):
    folder.mkdir(exist_ok=True)
    for k, part in enumerate(parts):
        np.savez(folder / f"{k}.npz", **dict(zip(("x_train", "y_train", "x_test", "y_test"), part, strict=True)))
    return [str(folder / f"{k}.npz") for k in range(len(parts))]


def apart(folder, sources, **given):
    there = {50 + k: Node((k,), source, folder / f"n{k}", "cpu") for k, source in enumerate(sources)}
    return Far(given.pop("config"), folder, APART.model_copy(update=given), there=there)


@pytest.mark.parametrize("method", ["fedavg", "fedblade", "scaffold", "fedgela"])
def test_the_model_is_that_of_one_machine_with_all_data(method, tmp_path):
    config = config_of(method, **CHANGES)
    parts = [ward(k) for k in range(3)]
    near = together(parts, config)
    files = saved(tmp_path / "data", parts)
    run = apart(tmp_path, files, config=config)
    far = run.trained()
    assert run.events == []
    assert digest(far) == digest(near)
    # Totals of the nodes' own test samples are those of all of them.
    for row, whole in zip(far.history, near.history, strict=True):
        assert row["test_accuracy"] == whole["test_accuracy"]
        assert row["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-6)


def test_a_server_with_a_test_set_measures_itself(tmp_path):
    config = config_of("fedavg", **CHANGES)
    parts = [ward(k) for k in range(3)]
    files = saved(tmp_path / "data", parts)
    test = tmp_path / "test.npz"
    _, _, x_test, y_test = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    np.savez(test, x_train=x_test[:1], y_train=y_test[:1], x_test=x_test, y_test=y_test)
    run = apart(tmp_path, files, config=config, test=str(test))
    far, near = run.trained(), together(parts, config)
    assert digest(far) == digest(near)
    assert [row["test_accuracy"] for row in far.history] == [row["test_accuracy"] for row in near.history]
    assert [row["test_loss"] for row in far.history] == [row["test_loss"] for row in near.history]
    assert all(request.kind in ("hello", "train") for request in run.post.asked)


def test_a_test_set_of_one_sample_is_enough(tmp_path):
    config = config_of("fedblade", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    x, y, x_test, y_test = parts[0]
    np.savez(tmp_path / "test.npz", x_train=x[:1], y_train=y[:1], x_test=x_test[:1], y_test=y_test[:1])
    run = apart(tmp_path, saved(tmp_path / "data", parts), config=config, test=str(tmp_path / "test.npz"))
    assert digest(run.trained()) == digest(together(parts, config))


@pytest.mark.parametrize("kind", ["pixels", "flat", "double"])
def test_nodes_decide_of_what_type_inputs_are(kind, tmp_path):
    """The server has placeholders of another type, which must not matter."""
    convert = {
        "pixels": lambda x: (x[:, 0] * 255).astype(np.uint8),
        "flat": lambda x: x.reshape(len(x), -1),
        "double": lambda x: x.astype(np.float64),
    }[kind]
    parts = [(convert(x), y, convert(x_test), y_test) for x, y, x_test, y_test in (ward(k) for k in range(3))]
    changes = {"dataset.augment": "crop_flip"} if kind == "pixels" else {}
    config = config_of("fedavg", rounds=1, **CHANGES, **changes)
    run = apart(tmp_path, saved(tmp_path / "data", parts), config=config)
    assert digest(run.trained()) == digest(together(parts, config))


def test_a_ward_may_see_one_class_alone_or_few_samples(tmp_path):
    x, y, x_test, y_test = ward(0)
    zeros, x9, x9_test = y == 0, ward(2)[0], ward(2)[2]
    nines = ward(2)[1] == 9
    parts = [
        (x[zeros], y[zeros], x_test[:1] * 0, y_test[:1] * 0),
        (x9[nines][:3], ward(2)[1][nines][:3], x9_test[ward(2)[3] == 9][:1], np.array([9])),
        ward(1),
    ]
    for method in ("fedavg", "fedgela"):
        config = config_of(method, rounds=1, **CHANGES)
        run = apart(tmp_path / method, saved(tmp_path, parts), config=config)
        assert digest(run.trained()) == digest(together(parts, config))


def test_own_models_are_measured_on_the_nodes_own_samples(tmp_path):
    config = config_of("fedper", **CHANGES, **{"evaluation.protocol": "ft"})
    parts = [ward(k) for k in range(3)]
    far = apart(tmp_path, saved(tmp_path / "data", parts), config=config).trained()
    assert len(far.clients) == 3
    assert all(0 <= row["accuracy"] <= 100 for row in far.clients)
    for row, part in zip(far.clients, parts, strict=True):
        hits = row["accuracy"] / 100 * len(part[3])
        assert hits == pytest.approx(round(hits), abs=1e-6)
        assert row["test_samples"] == len(part[3])
    mean = np.mean([row["accuracy"] for row in far.clients])
    assert far.history[-1]["test_accuracy"] == pytest.approx(mean)


def measured(change):
    """What the first node measures, changed."""

    def tamper(request, reply):
        if request.kind == "measure" and request.facts["client"] == 0:
            return [replace(reply, tensors={name: change(name, leaf) for name, leaf in reply.tensors.items()})]
        return [reply]

    return tamper


def test_measures_that_cannot_be_are_left_out(tmp_path):
    config = config_of("fedavg", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    files = saved(tmp_path / "data", parts)
    whole = apart(tmp_path / "a", files, config=config).trained().history[0]
    run = apart(tmp_path / "b", files, config=config)
    run.post.tamper = measured(lambda name, leaf: leaf * np.nan if name.endswith("count") else leaf)
    row = run.trained().history[0]
    (event,) = run.refused()
    assert (event["node"], event["round"]) == ("50", 1)
    assert "count' holds NaN" in event["reason"]
    others = sum(len(part[3]) for part in parts[1:])
    hits = row["test_accuracy"] / 100 * others
    assert hits == pytest.approx(round(hits), abs=1e-6)
    # A diverged model's loss is infinite on an honest node too; its accuracy still counts.
    run = apart(tmp_path / "c", files, config=config)
    run.post.tamper = measured(lambda name, leaf: leaf * np.inf if name.endswith("loss") else leaf)
    row = run.trained().history[0]
    assert run.refused() == []
    assert row["test_loss"] is None
    assert row["test_accuracy"] == whole["test_accuracy"]


def test_someone_must_measure(tmp_path):
    config = config_of("fedavg", rounds=1, **CHANGES)
    run = apart(tmp_path, saved(tmp_path / "data", [ward(k) for k in range(3)]), config=config)
    run.post.tamper = lambda request, reply: [] if request.kind == "measure" else [reply]
    with pytest.raises(RunFailed, match=r"0 of 3 clients measured the model after round 1.*--resume"):
        run.trained()


def test_a_quorum_must_measure_and_who_does_not_is_named(tmp_path):
    config = config_of("fedavg", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    files = saved(tmp_path / "data", parts)

    def silent(*clients):
        return lambda request, reply: (
            [] if request.kind == "measure" and request.facts["client"] in clients else [reply]
        )

    one = apart(tmp_path / "one", files, config=config)
    one.post.tamper = silent(1)
    row = one.trained().history[0]
    assert [(event["event"], event["client"]) for event in one.events] == [("not measured", 1)]
    hits = row["test_accuracy"] / 100 * (len(parts[0][3]) + len(parts[2][3]))
    assert hits == pytest.approx(round(hits), abs=1e-6)
    two = apart(tmp_path / "two", files, config=config)
    two.post.tamper = silent(0, 1)
    with pytest.raises(RunFailed, match=r"1 of 3 clients measured.*flower.quorum"):
        two.trained()


def test_clients_that_were_silent_are_asked_to_measure_again(tmp_path):
    config = config_of("fedavg", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    asked = []

    def late(request, reply):
        if request.kind == "measure":
            asked.append(request.facts["client"])
            return [] if asked.count(request.facts["client"]) == 1 and request.facts["client"] > 0 else [reply]
        return [reply]

    run = apart(tmp_path, saved(tmp_path / "data", parts), config=config)
    run.post.tamper = late
    assert run.trained().history[0]["test_accuracy"] == together(parts, config).history[0]["test_accuracy"]
    assert sorted(asked) == [0, 1, 1, 2, 2]


def test_data_may_come_from_a_function(tmp_path, monkeypatch):
    config = config_of("fedavg", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    files = saved(tmp_path / "data", parts)
    (tmp_path / "wards.py").write_text(
        "import numpy as np\n"
        "def second():\n"
        f"    with np.load({files[1]!r}) as file:\n"
        "        return tuple(file[name] for name in ('x_train', 'y_train', 'x_test', 'y_test'))\n"
    )
    monkeypatch.chdir(tmp_path)
    run = apart(tmp_path, [files[0], "wards:second", files[2]], config=config)
    assert digest(run.trained()) == digest(together(parts, config))


def broken(change):
    """The second ward's file with one thing changed."""

    def sources(folder):
        x, y, x_test, y_test = ward(1)
        return saved(folder, [ward(0), change(x, y, x_test, y_test), ward(2)])

    return sources


def source(text):
    return lambda folder: [
        each if k != 1 else text for k, each in enumerate(saved(folder, [ward(k) for k in range(3)]))
    ]


@pytest.mark.parametrize(
    ("sources", "reason"),
    [
        (broken(lambda x, y, xt, yt: (x, y + 3, xt, yt)), "label 10; the run has classes 0 to 9"),
        (broken(lambda x, y, xt, yt: (x, y - 9, xt, yt)), "there is a label -"),
        (broken(lambda x, y, xt, yt: (x * np.nan, y, xt, yt)), "NaN or infinite"),
        (broken(lambda x, y, xt, yt: (x[:0], y[:0], xt, yt)), "no training samples"),
        (broken(lambda x, y, xt, yt: (x, y[:-1], xt, yt)), "expected inputs [n, …] and n labels"),
        (broken(lambda x, y, xt, yt: (x, y.astype(float), xt, yt)), "one integer class per sample"),
        (source("gone.npz"), "'gone.npz' does not exist"),
        (source("no_module_here:samples"), "No module named 'no_module_here'"),
        (source("json:samples"), "has no attribute 'samples'"),
        (source("samples"), "neither an .npz file nor module:function"),
        (source("json:JSONDecoder"), "dataset is a JSONDecoder"),
    ],
)
def test_mistakes_of_a_node_reach_the_server(sources, reason, tmp_path):
    run = apart(tmp_path, sources(tmp_path / "data"), config=config_of("fedavg", rounds=1, **CHANGES))
    with pytest.raises(RunFailed, match=r"no node for client\(s\) 1 of 3") as failed:
        run.setup()
    assert reason in str(failed.value)
    (event,) = run.events
    assert event["node"] == "51"
    assert reason in event["reason"]


def test_a_function_that_fails_is_told_without_its_data(tmp_path, monkeypatch):
    (tmp_path / "failing_ward.py").write_text("def samples():\n    raise ZeroDivisionError('patient 7')\n")
    monkeypatch.chdir(tmp_path)
    run = apart(tmp_path, source("failing_ward:samples")(tmp_path / "data"), config=config_of("fedavg", **CHANGES))
    with pytest.raises(RunFailed) as failed:
        run.setup()
    assert "'failing_ward:samples' failed with a ZeroDivisionError" in str(failed.value)
    assert "patient" not in str(failed.value)


def test_wards_with_inputs_of_different_shapes_are_named(tmp_path):
    x, y, x_test, y_test = ward(1)
    files = saved(tmp_path / "data", [ward(0), (x[..., 1:], y, x_test[..., 1:], y_test), ward(2)])
    run = apart(tmp_path, files, config=config_of("fedavg", **CHANGES))
    with pytest.raises(Misconfigured, match=r"\[1, 8, 8\] \(client 0\).*Resize") as failed:
        run.setup()
    assert "[1, 8, 7] (client 1)" in str(failed.value)


def test_a_test_set_of_another_shape_is_refused(tmp_path):
    x, y, x_test, y_test = ward(1)
    np.savez(tmp_path / "test.npz", x_train=x[..., 1:], y_train=y, x_test=x_test[..., 1:], y_test=y_test)
    files = saved(tmp_path / "data", [ward(k) for k in range(3)])
    run = apart(tmp_path, files, config=config_of("fedavg", **CHANGES), test=str(tmp_path / "test.npz"))
    with pytest.raises(Misconfigured, match=r"\[1, 8, 7\] \(the server's test set\)"):
        run.setup()


def test_a_node_with_data_of_its_own_speaks_for_one_client(tmp_path):
    (file,) = saved(tmp_path / "data", [ward(0)])
    there = {50: Node((0, 1, 2), file, tmp_path / "n", "cpu")}
    run = Far(config_of("fedavg", **CHANGES), tmp_path, APART, there=there)
    with pytest.raises(RunFailed, match=r"clients \[0, 1, 2\], who would all train on them"):
        run.setup()


def test_recipes_of_named_data_sets_are_refused_before_anything_starts():
    table = config_of("fedavg", **{"dataset.augment": "crop_flip"}).table()
    terms = {"data": "nodes", "num_classes": 10}
    assert split_tables(table | {"flower": terms})[1].num_classes == 10
    table["dataset"]["augment"] = "fedetf"
    with pytest.raises(Misconfigured, match=r"dataset.augment = 'fedetf' is a recipe for one data set"):
        split_tables(table | {"flower": terms})
    with pytest.raises(Misconfigured, match=r"flower.num_classes is 0"):
        split_tables(table | {"flower": {"data": "nodes"}})


def test_a_node_knows_of_its_own_client_alone(tmp_path):
    (file,) = saved(tmp_path, [ward(1)])
    dataset = own_dataset(file, 10)
    clients = own_clients(dataset, 1, 3)
    assert clients.train.sizes().tolist() == [0, len(dataset.train), 0]
    assert clients.train.counts(1, 5).tolist() == np.bincount(dataset.train.labels, minlength=10).tolist()
    with pytest.raises(Misconfigured, match="client 0 are not here"):
        clients.train.part(0)
