"""Nodes with tables that have agreed on an encoding: the model is that of one machine with the files of all."""

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.flower._node_data import own_dataset
from fedblade.flower.agreement import Agreement
from fedblade.runs import prepare
from fedblade.runs._model_inputs import model_facts
from support.node_runs import alone, config_of, digest, opened, stopped, trained
from support.table_wards import (
    FILL,
    HEADER,
    OUTCOMES,
    TOWNS,
    agreed,
    apart,
    near_config,
    rows_of,
    write_csv,
)
from support.three_wards import CHANGES


@pytest.fixture
def wards(tmp_path):
    """A folder with a file for each of three hospitals."""
    return [write_csv(tmp_path / "wards" / f"{k}.csv", rows_of(k, 30 + 5 * k)) for k in range(3)]


@pytest.mark.parametrize("method", ["fedavg", "fedblade", "fedper"])
def test_the_model_is_that_of_one_machine_with_all_files(method, wards, tmp_path):
    agreement, count = agreed(tmp_path, wards)
    assert (agreement.classes, count) == (OUTCOMES, 3)
    run = apart(tmp_path, wards, agreement, count, config=config_of(method, **CHANGES))
    setup, config = run.setup(), near_config(wards[0].parent, method)
    far, near = trained(setup), alone(config)
    assert digest(far) == digest(near)
    if method == "fedper":
        assert [row["accuracy"] for row in far.clients] == [row["accuracy"] for row in near.clients]
    else:
        assert [row["test_accuracy"] for row in far.history] == [row["test_accuracy"] for row in near.history]
    # What the model knows of its data is the same too, so that it predicts rows with names.
    known = model_facts(prepare(config).dataset)
    assert model_facts(setup.dataset) == known | {"value_range": None}
    assert agreement.encoding.left_out == ("id", "site")


def test_a_folder_with_test_samples_a_parquet_file_and_a_lacking_class(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    place = tmp_path / "wards"
    first = write_csv(place / "a" / "train.csv", rows_of(0)).parent
    write_csv(first / "test.csv", rows_of(2, 12))
    second = write_csv(place / "b.tsv", rows_of(1))
    columns = dict(zip(HEADER, zip(*rows_of(2, 40), strict=True), strict=True))
    columns["age"] = [int(age) for age in columns["age"]]
    columns["pressure"] = [float(cell) if cell else None for cell in columns["pressure"]]
    parquet.write_table(pyarrow.table(columns), place / "c.parquet")
    sources = [first, second, place / "c.parquet"]
    agreement, count = agreed(tmp_path, sources)
    far = apart(tmp_path, sources, agreement, count).trained()
    assert digest(far) == digest(alone(near_config(place)))


def test_a_federation_whose_clients_all_have_test_samples_needs_no_seed(tmp_path):
    sources = []
    for k in range(2):
        sources.append(write_csv(tmp_path / "wards" / str(k) / "train.csv", rows_of(k)).parent)
        write_csv(sources[k] / "test.csv", rows_of(2, 12))
    agreement, count = agreed(tmp_path, sources, seed=7)
    assert agreement.seed is None
    config = config_of("fedavg", **CHANGES | {"num_clients": 2, "clients_per_round": 2})
    far = apart(tmp_path, sources, agreement, count, config=config).trained()
    assert digest(far) == digest(alone(near_config(tmp_path / "wards", clients_per_round=2)))


def test_numbers_that_are_no_class_numbers_are_numbered_alike(tmp_path):
    codes = {"dead": "9", "ill": "4", "well": "1"}
    sources = [
        write_csv(tmp_path / "wards" / f"{k}.csv", [(*row[:-1], codes[row[-1]]) for row in rows_of(k)])
        for k in range(3)
    ]
    agreement, count = agreed(tmp_path, sources)
    assert agreement.classes == (1, 4, 9)
    run = apart(tmp_path, sources, agreement, count)
    setup = run.setup()
    assert setup.dataset.label_values == (1, 4, 9)
    assert digest(trained(setup)) == digest(alone(near_config(tmp_path / "wards")))


def test_arrays_whose_labels_are_names(tmp_path):
    place, names = tmp_path / "wards", np.array(["cat", "dog", "owl"])
    place.mkdir()
    rng, sources = np.random.default_rng(0), []
    for k in range(3):
        y = names[[0, 1] if k == 0 else [1, 2]][rng.integers(0, 2, 30)]
        sources.append(place / f"{k}.npz")
        np.savez(sources[k], x=rng.random((30, 5), dtype=np.float32), y=y)
    agreement, count = agreed(tmp_path, sources)
    assert agreement == Agreement((0, 1, 2), 72, 1, ("cat", "dog", "owl"))
    far = apart(tmp_path, sources, agreement, count).trained()
    near = near_config(place, **{"dataset.label": "label", "dataset.missing": "refuse", "dataset.drop": ""})
    assert digest(far) == digest(alone(near))


def test_the_server_s_test_set_may_be_a_table(wards, tmp_path):
    agreement, count = agreed(tmp_path, wards)
    test = write_csv(tmp_path / "test.csv", rows_of(2, 20))
    run = apart(tmp_path, wards, agreement, count, test=str(test))
    setup = run.setup()
    assert len(setup.dataset.test) == 20, "all of it"
    far = trained(setup)
    assert digest(far) == digest(alone(near_config(wards[0].parent)))
    assert all(request.kind in ("hello", "train") for request in run.transport.asked)


def test_a_stopped_run_goes_on_with_its_agreement_and_with_no_other(wards, tmp_path):
    agreement, count = agreed(tmp_path, wards)
    stopped(apart(tmp_path, wards, agreement, count))
    other = agreed(tmp_path, [wards[0], *wards[:2]])[0]
    assert other != agreement
    with pytest.raises(RunFailed, match="client 0 holds other samples than when the run began"):
        apart(tmp_path, wards, other, count).setup()
    run = apart(tmp_path, wards, agreement, count)
    directory = opened(run, resume=True)
    assert digest(run.trained(directory)) == digest(alone(near_config(wards[0].parent)))
    directory.close()


def test_mistakes_in_the_server_s_own_file_are_told_in_full(wards, tmp_path):
    agreement, count = agreed(tmp_path, wards)
    test = write_csv(tmp_path / "test.csv", [(*row[:-1], "lost") for row in rows_of(2)])
    with pytest.raises(Misconfigured, match="some samples have the label lost; expected dead, ill, well"):
        apart(tmp_path, wards, agreement, count, test=str(test)).setup()
    np.savez(tmp_path / "test.npz", x=np.zeros((6, 5)), y=np.array(["ill", "well"] * 3))
    with pytest.raises(Misconfigured, match=r"flower.test = '.*' holds arrays, and the nodes have agreed on a table"):
        apart(tmp_path, wards, agreement, count, test=str(tmp_path / "test.npz")).setup()


def test_a_client_without_sums_may_take_part(wards, tmp_path, caplog):
    agreement, count = agreed(tmp_path, wards[:2])
    rows = [(*row[:2], "Kyiv" if row[2] == "Oslo" else row[2], *row[3:]) for row in rows_of(2)]
    late = write_csv(tmp_path / "late.csv", rows)
    run = apart(tmp_path, [*wards[:2], late], agreement, count)
    assert len(run.trained().history) == 2
    assert "column 'town' has 1 text in the training samples that the agreement does not have" in caplog.text
    dataset = own_dataset(str(late), count, (0, 2), agreement)
    town = dataset.train.inputs[:, [1, 2, 3]]
    assert agreement.encoding.columns[1].values == tuple(sorted(TOWNS))
    assert set(town.sum(axis=1)) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("header", "change", "said"),
    [
        (HEADER, lambda row: (*row[:-1], "gone"), "cannot be used as it is. The node's log says why"),
        (
            HEADER,
            lambda row: (*row[:-1], "1"),
            "labels are numbers; expected the names dead, ill, well. Write the names",
        ),
        (HEADER, lambda row: (row[0], "old", *row[2:]), "cannot be used as it is"),
        (
            HEADER,
            lambda row: (*row[:2], "7", *row[3:]),
            "column 'town' holds numbers in this table and text in the agr",
        ),
        (HEADER[:4] + HEADER[5:], lambda row: row[:4] + row[5:], "has no column 'site', and the agreement has one"),
        ((*HEADER, "more"), lambda row: (*row, "1"), "has a column 'more', and the agreement has none"),
        (HEADER[:5] + HEADER[6:], lambda row: row[:5] + row[6:], "no column 'remark'. .*--drop NAME.* were agreed on"),
    ],
)
def test_a_table_that_does_not_fit_stays_out(header, change, said, wards, tmp_path):
    agreement, count = agreed(tmp_path, wards)
    write_csv(wards[1], [change(row) for row in rows_of(1)], header)
    with pytest.raises(Misconfigured, match=said) as failed:
        own_dataset(str(wards[1]), count, (0, 1), agreement)
    assert not {"gone", "old"} & set(str(failed.value).split("'")), "a value of the table"
    with pytest.raises(RunFailed, match="Node 51 was refused: it cannot read its data, or the data do not fit the run"):
        apart(tmp_path, wards, agreement, count).setup()


def test_the_node_s_own_log_has_the_words(wards, tmp_path, caplog):
    agreement, count = agreed(tmp_path, wards)
    write_csv(wards[1], [(*row[:-1], "gone") for row in rows_of(1)])
    with pytest.raises(RunFailed) as failed:
        apart(tmp_path, wards, agreement, count).setup()
    assert "some samples have the label gone; expected dead, ill, well" in caplog.text
    assert "gone" not in str(failed.value)


def test_without_an_agreement_a_table_is_refused_with_what_to_do(wards, tmp_path):
    for agreement in (None, Agreement((0,), 3, classes=("ill", "well"))):
        with pytest.raises(Misconfigured, match=r"holds a table: .* Let every hospital give `fedblade flower sums`"):
            own_dataset(str(wards[0]), 3, (0, 0), agreement)
    run = apart(tmp_path, wards, None, 3)
    with pytest.raises(RunFailed, match="it cannot read its data, or the data do not fit the run"):
        run.setup()


def test_arrays_are_refused_where_tables_were_agreed_on(wards, tmp_path):
    agreement, count = agreed(tmp_path, wards)
    np.savez(tmp_path / "own.npz", x=np.zeros((6, 5)), y=np.array(["ill", "well"] * 3))
    with pytest.raises(Misconfigured, match="holds arrays, and the nodes have agreed on a table"):
        own_dataset(str(tmp_path / "own.npz"), count, (0, 0), agreement)


def test_missing_cells_are_refused_if_that_was_agreed_on(tmp_path):
    complete = [[row for row in rows_of(k) if "" not in row] for k in range(2)]
    sources = [write_csv(tmp_path / f"{k}.csv", rows) for k, rows in enumerate(complete)]
    settings = type(FILL)("outcome", drop=("remark",))
    agreement, count = agreed(tmp_path, sources, settings)
    write_csv(sources[0], rows_of(0))
    with pytest.raises(Misconfigured, match=r"row 5 has no value.*set --missing fill.*options .* were agreed on"):
        own_dataset(str(sources[0]), count, (0, 0), agreement)
