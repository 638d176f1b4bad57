"""A node that has the sums of its hospital reads its table in no other way, whatever the pinned app says."""

from dataclasses import replace

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.flower._given_sums import check_given_sums
from fedblade.flower._node import Node
from fedblade.flower._node_errors import NodeError
from fedblade.flower.joining import sums_source
from fedblade.flower.node_folder import check_settings
from support.node_runs import config_of
from support.table_wards import CHANGES, agreed, rows_of, write_csv


@pytest.fixture
def hospital(tmp_path):
    """The table of a hospital, its file of sums, and the agreement of two hospitals."""
    wards = [write_csv(tmp_path / "wards" / f"{k}.csv", rows_of(k)) for k in range(2)]
    agreement, _ = agreed(tmp_path, wards)
    return str(wards[0]), str(tmp_path / "sums-0.json"), agreement


def test_what_was_agreed_on_is_accepted(hospital):
    data, sums, agreement = hospital
    assert check_given_sums(sums, data, 0, agreement) == ()
    reordered = replace(agreement.settings, drop=tuple(reversed(agreement.settings.drop)))
    assert check_given_sums(sums, data, 0, replace(agreement, settings=reordered)) == ()


@pytest.mark.parametrize(
    "change",
    [{"label": "town"}, {"drop": ()}, {"categories": ("age",)}, {"missing": "refuse"}],
    ids=lambda c: next(iter(c)),
)
def test_another_way_to_read_the_table_is_refused(hospital, change):
    data, sums, agreement = hospital
    with pytest.raises(Misconfigured, match="than you chose"):
        check_given_sums(sums, data, 0, replace(agreement, settings=replace(agreement.settings, **change)))


def test_an_app_without_an_agreement_and_sums_of_another_client_are_refused(hospital):
    data, sums, agreement = hospital
    with pytest.raises(Misconfigured, match="agreed on with nothing"):
        check_given_sums(sums, data, 0, None)
    with pytest.raises(Misconfigured, match="those of client 0, and this node speaks for client 1"):
        check_given_sums(sums, data, 1, agreement)


def test_data_that_changed_since_are_told(hospital, tmp_path):
    data, sums, agreement = hospital
    write_csv(tmp_path / "wards" / "0.csv", rows_of(0, 31))
    (note,) = check_given_sums(sums, data, 0, agreement)
    assert "no longer have the sums" in note


def greeting():
    """The facts of a greeting of two hospitals."""
    config = config_of("fedavg", **CHANGES | {"num_clients": 2, "clients_per_round": 2})
    return {"config": config.table(), "num_classes": 3, "data": "nodes"}


def test_a_node_says_nothing_of_its_table_under_another_agreement(hospital, tmp_path):
    data, sums, agreement = hospital
    node = Node((0,), data, tmp_path / "node", "cpu", agreement, sums)
    told, _ = node.answer("hello", greeting(), {})
    assert sum(told["clients"]["0"]["counts"]) == 24
    hostile = replace(agreement, settings=replace(agreement.settings, label="town"))
    with pytest.raises(NodeError) as refused:
        replace(node, agreement=hostile).answer("hello", greeting(), {})
    assert refused.value.code == "data"


def test_join_takes_a_file_of_sums_alone(hospital, tmp_path):
    _, sums, _ = hospital
    assert sums_source(tmp_path / "sums-0.json") == sums
    with pytest.raises(Misconfigured, match="no valid JSON"):
        sums_source(tmp_path / "wards" / "0.csv")


def test_sums_without_data_are_refused():
    table = {"coordinator": "host:1", "clients": "0", "pin": "0" * 64, "sums": "/tmp/sums.json"}
    with pytest.raises(Misconfigured, match="and no data"):
        check_settings(table, "node.toml")
    assert check_settings(table | {"data": "/tmp/a.csv"}, "node.toml").sums == "/tmp/sums.json"
