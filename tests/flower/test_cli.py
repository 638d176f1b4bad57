"""`fedblade flower` without processes: what it prints, and mistakes in one line."""

import json
import os
import shutil
import sys

import pytest

pytest.importorskip("flwr")
from fedblade.cli._main import exit_status
from fedblade.core.errors import RunFailed
from fedblade.flower import certificates, following, local_federation
from fedblade.flower._record import FederationRecord, ProcessRecord


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    """Gives a command in a folder of its own: its exit status, what it printed, and its complaint."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = exit_status(["flower", *arguments], debug=False)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture(autouse=True)
def umask():
    """`serve` and `node` change the umask of their process, which here is that of all tests."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def app(cli):
    cli("init", "app", "--set", "num_clients=2", "--set", "clients_per_round=2", "--set", "rounds=2")
    return "app"


def test_certs_says_what_goes_to_whom(cli, tmp_path):
    status, printed, _ = cli("certs", "keys", "--host", "flower.example.org", "--days", "30")
    assert status == 0
    assert [line.partition(":")[0] for line in printed.splitlines()] == [
        "keys/ca.crt", "keys/server.crt, server.key", "keys/ca.key",
    ]  # fmt: skip
    # No node's private key is born on the coordinator's machine.
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == [
        "ca.crt", "ca.key", "server.crt", "server.key",
    ]  # fmt: skip
    status, _, error = cli("certs", "keys")
    assert status == 2
    assert "keys in use are not replaced. Choose another folder" in error


def test_a_renewal_says_what_is_new(cli):
    cli("certs", "keys", "--host", "flower.example.org")
    status, printed, _ = cli("certs", "keys", "--renew", "--days", "400")
    assert status == 0
    assert printed.startswith("keys/server.crt, server.key: new, valid for 400 days.")


def test_init_ends_with_the_folder(cli, tmp_path):
    status, printed, _ = cli("init", "my app", "--set", "method=fedavg", "--set", "flower.quorum=1.0")
    assert status == 0
    assert "fedblade flower up 'my app'" in printed
    assert printed.splitlines()[-1] == "my app"
    assert "quorum = 1.0" in (tmp_path / "my app" / "fedblade.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "nowhere"), "'nowhere' holds no Flower app"),
        (("run", "nowhere"), "'nowhere' holds no Flower app"),
        (("status", "nowhere"), "'nowhere' holds no Flower app"),
        (("down", "nowhere"), "'nowhere' holds no Flower app"),
        (("run", "app"), "is not up. Start it: fedblade flower up"),
        (("run", "app", "--resume"), "--resume needs the folder of the run"),
        (("run", "app", "--from-round", "3"), "It needs the folder of that run: --resume --out DIR"),
        (("up", "app", "--nodes", "3"), "--nodes 3 is more than there are clients (2)"),
        (("init", "app"), "'app' is not an empty folder"),
        (("init", "new", "nothing"), "nothing"),
        (("init", "new", "fb-t1"), "Write the settings of one cell into a .toml file"),
        (("certs", "new", "--host", "a b"), "--host 'a b' is neither"),
        (("certs", "new", "--days", "10000000"), "--days 10000000 is not between 1 and 3650"),
        (("certs", "new", "--renew"), "'new/ca.crt' is missing"),
        (("init", "new", "flower.toml"), "flower = 3 is not a table"),
        (("up", "apart"), "nodes of a local federation have no data of their own"),
        (("up", "torn"), "federation"),
        (("node", "nowhere"), "is not the folder of a node: there is no node.toml"),
        (("digest", "nowhere"), "'nowhere' holds no Flower app"),
        (("serve", "app", "--host", "127.0.0.1", "--certs", "gone"), "ca.crt' is missing"),
        (("serve", "app", "--host", "127.0.0.1", "--certs", "gone", "--port", "0"), "--port 0 is not between"),
        (("serve", "nowhere", "--host", "127.0.0.1", "--certs", "gone"), "'nowhere' holds no Flower app"),
        (
            ("join", "new", "--coordinator", "h:1", "--ca", "gone", "--client", "0", "--pin", "0"),
            "not a SHA-256 digest",
        ),
    ],
)
def test_mistakes_are_one_line(cli, app, tmp_path, arguments, said):
    (tmp_path / "flower.toml").write_text("flower = 3\n")
    for name in ("apart", "torn"):
        shutil.copytree(app, name)
    text = (tmp_path / app / "fedblade.toml").read_text()
    own_data = text.replace('data = "shares"\nnum_classes = 0', 'data = "nodes"\nnum_classes = 10')
    (tmp_path / "apart" / "fedblade.toml").write_text(own_data)
    (tmp_path / "torn" / "fedblade.toml").write_text("federation = 'x'\n")
    status, printed, error = cli(*arguments)
    assert (status, printed) == (2, "")
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_an_app_for_nodes_with_data_is_not_sent_to_a_local_federation(cli):
    status, printed, _ = cli("init", "app", "--set", "flower.data=nodes", "--set", "flower.num_classes=10")
    assert status == 0
    assert "fedblade flower up" not in printed
    assert "data of their own. app/README.md says how to deploy it" in printed


def test_run_finds_parts_that_came_from_a_file(cli, monkeypatch, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from fedblade.methods.fedavg import fedavg\n\n\ndef own():\n    return fedavg()\n"
    )
    assert cli("init", "app", "--set", "method=mine.py:own")[0] == 0
    (tmp_path / "mine.py").unlink()
    asked = []

    def follow(app, config, out, listener, *, resume):
        asked.append(config.method.name)
        raise RunFailed("far enough")

    monkeypatch.setattr(local_federation, "require_up", lambda _: FederationRecord(True, ProcessRecord(1)))
    monkeypatch.setattr(following, "follow", follow)
    before = list(sys.path)
    try:
        _, _, error = cli("run", "app", "--out", "there")
    finally:
        for name in ("own_parts", "own_parts.mine"):
            sys.modules.pop(name, None)
    assert asked == ["own_parts.mine:own"], error
    assert sys.path == before


def test_what_is_not_up_has_a_status_too(cli, app):
    status, printed, _ = cli("status", app)
    assert status == 1
    assert "not up. Start it" in printed
    status, printed, _ = cli("status", app, "--json")
    assert status == 1
    assert json.loads(printed)["ready"] is False


def test_run_follows_and_ends_with_the_folder(cli, app, monkeypatch, tmp_path):
    asked = {}
    summary = {
        "method": "fedblade", "final_accuracy": 50.0, "last10_accuracy": 40.0, "accuracy_of": "global", "rounds": 2,
        "rounds_evaluated": 2,
        "seconds": 1.0, "flags": [],
    }  # fmt: skip

    def follow(app, config, out, listener, *, resume):
        asked.update(out=out, rounds=config.federation.rounds, resume=resume)
        return summary

    monkeypatch.setattr(local_federation, "require_up", lambda _: FederationRecord(True, ProcessRecord(1)))
    monkeypatch.setattr(following, "follow", follow)
    status, printed, _ = cli("run", app, "--out", "results/a")
    assert (status, printed.splitlines()[-1]) == (0, "results/a")
    assert "final accuracy 50.00 %" in printed
    assert "(global model)" in printed
    assert asked == {"out": tmp_path / "results" / "a", "rounds": 2, "resume": False}
    summary["claimed"] = ["global"]
    assert "(global model, claimed by the nodes)" in cli("run", app, "--out", "results/b")[1]
    status, printed, _ = cli("run", app, "--quiet")
    assert status == 0
    assert printed.startswith("runs/")
    assert printed.count("\n") == 1


def test_a_folder_with_another_run_is_refused_before_anything_starts(cli, app, monkeypatch, tmp_path):
    monkeypatch.setattr(local_federation, "require_up", lambda _: FederationRecord(True, ProcessRecord(1)))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "config.toml").write_text("seed = 1\n")
    status, _, error = cli("run", app, "--out", "taken")
    assert status == 2
    assert "already holds a run" in error


def test_keys_are_admitted_and_revoked_while_the_coordinator_is_down(cli, app, tmp_path):
    certificates.write_node_key(tmp_path / "node.key")
    assert "is not up" in cli("admit", "node.key.pub", app, "--client", "1")[2]
    (tmp_path / "app" / ".flower").mkdir()
    (tmp_path / "app" / ".flower" / "service.json").write_text("{}")
    later = ". The coordinator is down and takes this over when it starts.\n"
    status, printed, _ = cli("admit", "node.key.pub", app, "--client", "1")
    assert (status, printed.startswith("admitted for client 1: SHA256:"), printed.endswith(later)) == (0, True, True)
    status, printed, _ = cli("revoke", app, "--client", "1")
    assert (status, printed.startswith("revoked for client 1: SHA256:"), printed.endswith(later)) == (0, True, True)
