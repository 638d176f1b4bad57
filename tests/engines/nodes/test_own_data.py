"""Nodes with data of their own: the model is that of one machine which has everything, and mistakes are told."""

import numpy as np
import pytest
from torch.utils.data import ConcatDataset

from fedblade.config.run_config import complete_config
from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.data import as_dataset
from fedblade.flower._node import Node
from fedblade.flower._node_data import own_clients, own_dataset
from fedblade.flower._node_errors import TEXTS
from fedblade.flower.app import split_tables
from fedblade.flower.new_app import app_config
from fedblade.runs import prepare
from fedblade.runs._model_inputs import model_facts
from fedblade.runs._summary import summarise
from support.node_runs import Far, alone, config_of, config_of_clients, digest, trained
from support.three_wards import APART, CHANGES, apart, at_one_place, saved, together, ward


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
    assert all(request.kind in ("hello", "train") for request in run.transport.asked)


def test_a_test_set_of_one_sample_is_enough(tmp_path):
    config = config_of("fedblade", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    x, y, x_test, y_test = parts[0]
    np.savez(tmp_path / "test.npz", x_train=x[:1], y_train=y[:1], x_test=x_test[:1], y_test=y_test[:1])
    run = apart(tmp_path, saved(tmp_path / "data", parts), config=config, test=str(tmp_path / "test.npz"))
    assert digest(run.trained()) == digest(together(parts, config))


@pytest.mark.parametrize("kind", ["pixels", "flat", "double", "bytes", "last"])
def test_nodes_decide_of_what_type_inputs_are(kind, tmp_path):
    """The server has placeholders, and its model knows how nodes scaled and laid out what it learnt from."""
    convert = {
        "bytes": lambda x: (x * 16).astype(np.uint8).reshape(len(x), -1),
        "last": lambda x: np.moveaxis((x * 255).astype(np.uint8), 1, -1),
        "pixels": lambda x: (x[:, 0] * 255).astype(np.uint8),
        "flat": lambda x: x.reshape(len(x), -1),
        "double": lambda x: x.astype(np.float64),
    }[kind]
    parts = [(convert(x), y, convert(x_test), y_test) for x, y, x_test, y_test in (ward(k) for k in range(3))]
    changes = {"dataset.augment": "crop_flip"} if kind == "pixels" else {}
    config = config_of("fedavg", rounds=1, **CHANGES, **changes)
    run = apart(tmp_path, saved(tmp_path / "data", parts), config=config)
    setup = run.setup()
    assert digest(trained(setup)) == digest(together(parts, config))
    facts, alone = model_facts(setup.dataset), model_facts(own_dataset(str(tmp_path / "data" / "0.npz"), 10))
    # What a node's least and largest values are is its own business.
    assert facts == alone | {"value_range": None}
    assert facts["unit"] == (255.0 if kind in ("pixels", "last") else 1.0)


WARDS = """
from pathlib import Path
import numpy as np
from support.shifted_images import ShiftedImages

def two(ward):
    with np.load(Path(__file__).parent / "data" / f"{ward}.npz") as file:
        x, y, x_test, y_test = (file[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    return ShiftedImages(x, y, moved=True), ShiftedImages(x_test, y_test)

def ward0(): return two(0)
def ward1(): return two(1)
def ward2(): return two(2)
"""


def test_random_transforms_are_drawn_on_nodes_as_on_one_machine(tmp_path, monkeypatch):
    """Each ward lacks classes, and none may number its own ones."""
    saved(tmp_path / "data", [ward(k) for k in range(3)])
    (tmp_path / "moved_wards.py").write_text(WARDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import moved_wards

    config = config_of("fedavg", rounds=1, epochs=2, **CHANGES)
    far = apart(tmp_path, [f"moved_wards:ward{k}" for k in range(3)], config=config).trained()
    trains, tests = zip(*(moved_wards.two(k) for k in range(3)), strict=True)
    whole = as_dataset((ConcatDataset(trains), ConcatDataset(tests)))
    assert digest(far) == digest(at_one_place(whole, [len(each) for each in trains], config))
    assert digest(far) != digest(together([ward(k) for k in range(3)], config))


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


def test_data_may_come_from_a_function(tmp_path):
    config = config_of("fedavg", rounds=1, **CHANGES)
    parts = [ward(k) for k in range(3)]
    files = saved(tmp_path / "data", parts)
    (tmp_path / "wards.py").write_text(
        "import numpy as np\n"
        "def second():\n"
        f"    with np.load({files[1]!r}) as file:\n"
        "        return tuple(file[name] for name in ('x_train', 'y_train', 'x_test', 'y_test'))\n"
    )
    run = apart(tmp_path, [files[0], f"{tmp_path / 'wards.py'}:second", files[2]], config=config)
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
        (broken(lambda x, y, xt, yt: (x, y + 3, xt, yt)), "labels lie outside of the run's classes 0 to 9"),
        (broken(lambda x, y, xt, yt: (x, y - 9, xt, yt)), "labels lie outside of the run's classes"),
        (broken(lambda x, y, xt, yt: (x * np.nan, y, xt, yt)), "NaN or infinite"),
        (broken(lambda x, y, xt, yt: (x[:0], y[:0], xt, yt)), "no training samples"),
        (broken(lambda x, y, xt, yt: (x, y[:-1], xt, yt)), "expected one label for each input"),
        (broken(lambda x, y, xt, yt: (x, y.astype(float), xt, yt)), "one integer class per sample"),
        (source("gone.npz"), "'gone.npz' does not exist"),
        (source("no_module_here:samples"), "No module named 'no_module_here'"),
        (source("json:samples"), "has no attribute 'samples'"),
        (source("samples"), "neither an .npz or"),
        (source("json:JSONDecoder"), "dataset is of type JSONDecoder"),
    ],
)
def test_mistakes_of_a_node_are_for_its_own_log_and_the_server_learns_that_it_made_one(
    sources, reason, tmp_path, caplog
):
    run = apart(tmp_path, sources(tmp_path / "data"), config=config_of("fedavg", rounds=1, **CHANGES))
    with pytest.raises(RunFailed, match=r"no node for client\(s\) 1 of 3. Node 51 was refused: it cannot ") as failed:
        run.setup()
    (event,) = run.events
    assert event["node"] == "51"
    assert event["reason"] in (TEXTS["data"].removesuffix("."), TEXTS["setup"].removesuffix("."))
    assert reason in caplog.text
    for told in (str(failed.value), event["reason"]):
        assert str(tmp_path) not in told
        assert reason not in told


def test_a_function_that_fails_is_told_without_its_data(tmp_path, caplog):
    file = tmp_path / "failing_ward.py"
    file.write_text("def samples():\n    raise ZeroDivisionError('patient 7')\n")
    run = apart(tmp_path, source(f"{file}:samples")(tmp_path / "data"), config=config_of("fedavg", **CHANGES))
    with pytest.raises(RunFailed) as failed:
        run.setup()
    assert "failing_ward.py:samples' failed with a ZeroDivisionError" in caplog.text
    assert "failing_ward" not in str(failed.value)
    assert "patient" not in str(failed.value)


def test_wards_with_inputs_of_different_shapes_are_named(tmp_path):
    x, y, x_test, y_test = ward(1)
    files = saved(tmp_path / "data", [ward(0), (x[..., 1:], y, x_test[..., 1:], y_test), ward(2)])
    run = apart(tmp_path, files, config=config_of("fedavg", **CHANGES))
    with pytest.raises(Misconfigured, match=r"\[1, 8, 8\] \(client 0\).*Resize") as failed:
        run.setup()
    assert "[1, 8, 7] (client 1)" in str(failed.value)


def test_wards_that_scale_their_inputs_in_different_ways_are_named(tmp_path):
    x, y, x_test, y_test = ward(1)
    pixels = [(each * 255).astype(np.uint8) for each in (x, x_test)]
    files = saved(tmp_path / "data", [ward(0), (pixels[0], y, pixels[1], y_test), ward(2)])
    run = apart(tmp_path, files, config=config_of("fedavg", **CHANGES))
    with pytest.raises(
        Misconfigured, match=r"x / 1 .* \(client 0\), .*x / 255 .* \(client 1\); expected one way. Store"
    ):
        run.setup()


def test_labels_that_a_node_numbered_by_itself_are_refused(tmp_path):
    file = tmp_path / "numbering_ward.py"
    file.write_text(
        "import numpy as np\nfrom fedblade.data import as_dataset\n"
        "def samples():\n    x, y = np.zeros((6, 2)), np.arange(6) % 2 + 4\n    return as_dataset((x, y, x, y))\n"
    )
    with pytest.raises(Misconfigured, match=r"renumbered by the classes of this node alone; expected .* 0 to 9"):
        own_dataset(f"{file}:samples", 10)


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
    with pytest.raises(RunFailed, match="speaks for several clients, who would all train on them"):
        run.setup()


def test_recipes_of_named_data_sets_are_refused_before_anything_starts():
    table = config_of("fedavg", **{"dataset.augment": "crop_flip"}).table()
    terms = {"data": "nodes", "num_classes": 10}
    assert split_tables(table | {"flower": terms})[1].num_classes == 10
    table["dataset"]["augment"] = "fedetf"
    with pytest.raises(Misconfigured, match=r"dataset.augment = 'fedetf' is made for one data set"):
        split_tables(table | {"flower": terms})
    with pytest.raises(Misconfigured, match=r"flower.num_classes is 0"):
        split_tables(table | {"flower": {"data": "nodes"}})


@pytest.mark.parametrize("partition", [None, {"name": "dirichlet", "alpha": 0.1}])
def test_data_on_nodes_need_no_partition_and_results_name_none(partition, tmp_path):
    table = config_of("fedavg", rounds=1, **CHANGES).table()
    del table["partition"]
    given = {} if partition is None else {"partition": partition}
    config, _ = split_tables(table | given | {"flower": {"data": "nodes", "num_classes": 10}})
    run = apart(tmp_path, saved(tmp_path / "data", [ward(k) for k in range(3)]), config=config)
    setup = run.setup()
    assert summarise(setup, trained(setup).history, "finished")["partition"] == "nodes"
    assert complete_config(config.table()) == config
    assert app_config(None, {"flower.data": "nodes", "flower.num_classes": 10, "partition.seed": 1})[0]
    with pytest.raises(Misconfigured, match=r"partition 'nodes' is for deployed runs"):
        prepare(config)


def test_a_node_knows_of_its_own_client_alone(tmp_path):
    (file,) = saved(tmp_path, [ward(1)])
    dataset = own_dataset(file, 10)
    clients = own_clients(dataset, 1, 3)
    assert clients.train.sizes().tolist() == [0, len(dataset.train), 0]
    assert clients.train.counts(1, 5).tolist() == np.bincount(dataset.train.labels, minlength=10).tolist()
    with pytest.raises(Misconfigured, match="client 0 are not on this machine"):
        clients.train.part(0)


def test_files_of_a_folder_of_clients_are_those_that_nodes_read(tmp_path):
    """Also where test samples are held out: the seed of the run and the client's number draw them on both sides."""
    folder = tmp_path / "wards"
    folder.mkdir()
    for k in range(3):
        x, y, x_test, y_test = ward(k)
        test = {"x_test": x_test, "y_test": y_test} if k == 1 else {}
        np.savez(folder / f"{k}.npz", x_train=x, y_train=y, **test)
    changes = {key: value for key, value in CHANGES.items() if key != "num_clients"}
    data = {"dataset": "clients", "dataset.path": str(folder), "partition.seed": "auto"}
    near = alone(config_of_clients("fedper", **data, **changes))
    far = apart(tmp_path, [str(folder / f"{k}.npz") for k in range(3)], config=config_of("fedper", **CHANGES)).trained()
    assert digest(far) == digest(near)
    assert [record["test_samples"] for record in far.clients] == [record["test_samples"] for record in near.clients]
    assert [record["accuracy"] for record in far.clients] == [record["accuracy"] for record in near.clients]
    assert [record["name"] for record in near.clients] == ["0", "1", "2"]


def test_a_local_federation_shares_a_folder_of_clients(tmp_path):
    folder = tmp_path / "wards"
    folder.mkdir()
    for k in range(3):
        np.savez(folder / f"{k}.npz", **dict(zip(("x_train", "y_train", "x_test", "y_test"), ward(k), strict=True)))
    data = {"dataset": "clients", "dataset.path": str(folder), "clients_per_round": 2}
    config = config_of_clients("fedavg", **data)
    assert digest(Far(config, tmp_path).trained()) == digest(alone(config))


def test_a_local_federation_shares_a_folder_of_tables(tmp_path):
    """Each process reads the folder, holds the same samples out and encodes the columns by the same sums."""
    folder = tmp_path / "wards"
    folder.mkdir()
    rng = np.random.default_rng(2)
    for k, rows in enumerate((30, 20, 25)):
        ages, towns = rng.integers(20, 90, rows), rng.choice(["Oslo", "Lima", "Łódź"], rows)
        cells = [f"{age},{town},{'ill' if age > 50 else 'well'}" for age, town in zip(ages, towns, strict=True)]
        (folder / f"{k}.csv").write_text("\n".join(("age,town,label", *cells, "")))
    data = {"dataset": "clients", "dataset.path": str(folder), "clients_per_round": 2, "participation": "by_size"}
    config = config_of_clients("fedavg", **data)
    far, near = Far(config, tmp_path).trained(), alone(config)
    assert digest(far) == digest(near)
    assert [row["clients"] for row in far.history] == [row["clients"] for row in near.history]
