"""Ranks that were asked for another run than rank 0 are refused, with the difference; ranks are threads here."""

import re
from pathlib import Path

import pytest
import torch.distributed as dist

from fedblade.core.errors import Misconfigured
from fedblade.engines.ranks._notices import Notices
from fedblade.runs import RunRequest, load_config
from fedblade.runs.distributed import _agreement, _process, agreed_config, agreed_folder, must_say_why
from fedblade.runs.distributed._shared_run import _refuse_other_facts
from support.thread_ranks import on_ranks

SAME = {"method": "fedprox", "rounds": 3}


class Elsewhere(RunRequest):
    """A request on a machine that does not have what it names."""

    is_readable = False


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(_agreement, "_LEAVE_FIRST_SECONDS", 0.0)


def agreed(*requests, wrap=lambda ranks: ranks):
    """What each rank gets for its request: a configuration or an error."""
    return on_ranks(lambda ranks: agreed_config(wrap(ranks), requests[ranks.rank]), len(requests))


def refused(*requests, **options):
    """The one message with which all ranks end."""
    found = agreed(*requests, **options)
    assert all(isinstance(each, Misconfigured) for each in found), found
    assert all(each.exit_status == 2 for each in found)
    (message,) = {str(each).removeprefix("rank 1: ") for each in found}
    return message


def test_ranks_with_the_same_settings_agree():
    asked = RunRequest("quickstart", SAME)
    assert [config.table() for config in agreed(asked, asked, asked)] == [asked.config().table()] * 3
    assert agreed_config(None, asked) == asked.config()


def test_the_way_to_write_a_setting_is_not_a_setting(tmp_path):
    """A short name or a full one, a preset and an assignment or a file with the same contents."""
    file = tmp_path / "mine.toml"
    file.write_text(load_config("quickstart", SAME)[0].to_toml())
    first = RunRequest("quickstart", SAME, out=tmp_path / "first")
    second = RunRequest("quickstart", {"method": "fedprox", "federation.rounds": 3}, out=tmp_path / "second")
    assert [config.method.name for config in agreed(first, second, RunRequest(file, out=tmp_path))] == ["fedprox"] * 3


def test_other_settings_are_named_with_both_values():
    other = RunRequest("quickstart", SAME | {"lr": 0.5, "seed": 2})
    message = refused(RunRequest("quickstart", SAME), RunRequest("quickstart", SAME), other)
    assert re.search(r"rank 2 on \S+ has seed = 2 \(rank 0: 1\) and optimizer\.lr = 0\.5 \(rank 0: 0\.\d+\)", message)
    assert "rank 1" not in message


def test_a_setting_that_only_one_rank_has_is_named():
    message = refused(RunRequest("quickstart", {"method": "fedavg"}), RunRequest("quickstart", {"method": "fedprox"}))
    assert "method.name = 'fedprox' (rank 0: 'fedavg')" in message
    assert "method.mu = 0.01 (rank 0: 'not set')" in message


def test_many_differences_are_counted():
    many = {"rounds": 9, "num_clients": 30, "epochs": 7, "lr": 0.7, "momentum": 0.3, "batch_size": 8, "seed": 5}
    assert " and 2 more. Start all ranks" in refused(RunRequest("quickstart"), RunRequest("quickstart", many))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"resume": True}, "resume = True (rank 0: False)"),
        ({"out": None, "resume": False}, "out = 'not given' (rank 0: 'given')"),
        ({"resume": True, "from_round": 3}, "from_round = 3 (rank 0: None)"),
    ],
)
def test_other_options_are_refused(tmp_path, changes, named):
    asked = {"source": "quickstart", "out": tmp_path}
    assert named in refused(RunRequest(**asked), RunRequest(**asked | changes))


def test_every_rank_has_its_own_device_and_rank_0_the_trackers():
    first = RunRequest("quickstart", {"trackers": "tensorboard"})
    found = agreed(first, RunRequest("quickstart", {"device": "cpu"}))
    assert [config.general.device for config in found] == ["auto", "cpu"]


def test_a_file_need_not_be_on_every_machine(tmp_path):
    """Without the file a rank compares what its command says."""
    (tmp_path / "mine.toml").write_text(load_config("quickstart", SAME)[0].to_toml())

    def on_machine(machine, **overrides):
        return (Elsewhere if machine else RunRequest)(tmp_path / "mine.toml", overrides)

    found = agreed(on_machine(0, lr=0.2), on_machine(1, lr=0.2, device="cpu"))
    assert [config.optimizer.lr for config in found] == [0.2, 0.2]
    assert [config.general.device for config in found] == ["auto", "cpu"]
    assert "lr = '0.3' (rank 0: '0.2')" in refused(on_machine(0, lr=0.2), on_machine(1, lr=0.3))
    assert "lr = 'not set' (rank 0: '0.2')" in refused(on_machine(0, lr=0.2), on_machine(1))
    other = refused(on_machine(0), RunRequest(tmp_path / "other.toml"))
    assert f"the preset or file = '{tmp_path}/other.toml' (rank 0: '{tmp_path}/mine.toml')" in other


def test_a_mistake_of_one_rank_is_the_error_of_all():
    right, wrong = RunRequest("quickstart"), RunRequest("quickstart", {"method": "fedavgg"})
    assert "unknown method 'fedavgg'" in refused(wrong, right)
    assert "unknown method 'fedavgg'" in refused(right, wrong)


@pytest.mark.parametrize("name", ["fedblade", "torch"])
def test_other_versions_are_refused_before_anything_else_travels(name):
    class Other:
        def __init__(self, ranks):
            self.ranks = ranks

        def __getattr__(self, attribute):
            return getattr(self.ranks, attribute)

        def gather(self, value):
            return self.ranks.gather(value | ({name: "9.9"} if self.ranks.rank == 1 else {}))

    asked = RunRequest("quickstart")
    assert re.search(rf"rank 1 on \S+ has {name} 9\.9, and rank 0 on \S+ has", refused(asked, asked, wrap=Other))


def test_other_data_are_shown_with_their_source():
    def facts(host, data, source, split="same"):
        return {"same": {"engine": "stacked", "data set": data * 16, "split": split}, "host": host, "source": source}

    _refuse_other_facts([facts("a", "beef", "/a/x.npz"), facts("b", "beef", "/b/y.npz")])
    everyone = [facts("a", "beef", "/a/x.npz"), facts("b", "cafe", "/b/y.npz", split="other")]
    shown = r"rank 1 on b has another data set than rank 0 on a: cafecafecafe \(/b/y.npz\), and rank 0 has beefbeefbeef"
    with pytest.raises(Misconfigured, match=shown):
        _refuse_other_facts(everyone)


def test_a_folder_is_chosen_by_rank_0_or_given_to_every_rank(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = load_config("quickstart", {})[0]
    first, second = on_ranks(lambda ranks: agreed_folder(ranks, RunRequest(), config), 2)
    assert first == second
    assert first.parent == Path("runs")
    own = [RunRequest(out=Path("a")), RunRequest(out=Path("b"))]
    assert on_ranks(lambda ranks: agreed_folder(ranks, own[ranks.rank], config), 2) == [Path("a"), Path("b")]


def test_rank_1_says_why_the_run_ends_only_if_rank_0_does_not(monkeypatch):
    """A notice is found in the store however late rank 1 looks."""
    monkeypatch.setattr(_process, "_RANK_0_SECONDS", 0.1)
    monkeypatch.setattr(_process.signal, "signal", lambda *_: None)
    store = dist.HashStore()
    ranks = [type("Rank", (), {"rank": rank, "is_rank_0": rank == 0, "notices": Notices(store)}) for rank in range(3)]
    assert [must_say_why(rank) for rank in ranks] == [False, True, False]
    _process.announce_end(ranks[1])
    assert must_say_why(ranks[1])
    _process.announce_end(ranks[0])
    assert [must_say_why(rank) for rank in ranks] == [False, False, False]


def test_a_store_that_is_gone_has_no_notices():
    class NoStore:
        def set(self, *_):
            raise dist.DistNetworkError("gone")

        def check(self, _):
            raise dist.DistNetworkError("gone")

    Notices(NoStore()).post("anything")
    assert not Notices(NoStore()).appears("anything", 0.0)
