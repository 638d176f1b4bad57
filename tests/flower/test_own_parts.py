"""Own code runs on a node only if its digest is allowed, and only with the configuration of the pinned app."""

import sys

import pytest

pytest.importorskip("flwr")
from fedblade.core.errors import Misconfigured
from fedblade.flower import _own_parts
from fedblade.flower._executor import check_app
from fedblade.flower._flwr_internals.apps import app_bytes
from fedblade.flower._node_errors import NodeError
from fedblade.flower._own_parts import Approval, serve_own_parts
from fedblade.flower._server import _greeting
from fedblade.flower.app import read_app
from fedblade.flower.app_folder import PARTS, find_app
from fedblade.flower.digests import app_digest, copy_own_parts, digest_of, own_part_digests
from fedblade.flower.new_app import make_app
from fedblade.flower.node_folder import NodeFolder, NodeSettings, write_settings

OWN = """\
from pathlib import Path

from fedblade.methods.fedavg import fedavg
{extra}
Path({mark!r}).touch()


def own():
    return fedavg()
"""


@pytest.fixture
def app(tmp_path):
    """An app with a method of the user's; its file leaves a mark when it is imported."""
    (tmp_path / "mine.py").write_text(OWN.format(mark=str(tmp_path / "mark"), extra=""))
    make_app(tmp_path / "app", None, {"method": f"{tmp_path / 'mine.py'}:own"})
    (tmp_path / "mark").unlink()
    return find_app(tmp_path / "app")


@pytest.fixture
def node(tmp_path):
    """A node's folder, from which Python serves own parts."""
    folder = NodeFolder(tmp_path / "node")
    folder.own_parts.mkdir(parents=True)
    write_settings(folder, NodeSettings("host:1", "0", pin="0" * 64))
    before = list(sys.meta_path)
    serve_own_parts(folder)
    yield folder
    sys.meta_path[:] = before


def allow(node, *digests):
    write_settings(node, NodeSettings("host:1", "0", pin="0" * 64, allow=list(digests)))
    return list(digests)


def facts_of(approval):
    return {"config": approval._config, "num_classes": 0, "data": "shares"}


def test_own_parts_run_from_the_node_s_folder_once_their_digest_is_allowed(app, node, tmp_path):
    fab, mark = app_bytes(app.path), tmp_path / "mark"
    with pytest.raises(Misconfigured, match=r"this node has no file 'mine.py'.*folder own_parts"):
        Approval(fab, node, [])
    (digest,) = copy_own_parts(app, node.path)
    with pytest.raises(Misconfigured, match=f"'mine.py' of this node has the digest {digest}, which is not allowed"):
        Approval(fab, node, [])
    assert not mark.exists()
    approval = Approval(fab, node, allow(node, digest))
    assert mark.exists()
    approval.check(facts_of(approval))
    assert sys.modules["own_parts.mine"].__file__ == str(node.own_parts / "mine.py")


def test_a_file_that_was_changed_after_it_was_allowed_does_not_run(app, node, tmp_path):
    allowed = allow(node, *copy_own_parts(app, node.path))
    (node.own_parts / "mine.py").write_text(OWN.format(mark=str(tmp_path / "mark"), extra="import os\n"))
    with pytest.raises(Misconfigured, match="is not allowed"):
        Approval(app_bytes(app.path), node, allowed)
    assert not (tmp_path / "mark").exists()


def test_a_file_that_is_changed_between_its_check_and_its_import_runs_as_it_was_checked(
    app, node, tmp_path, monkeypatch
):
    mine, read = tmp_path / "mine.py", _own_parts._allowed_content

    def changed_after(file, *rest):
        content = read(file, *rest)
        file.write_bytes(content.replace(b"/mark", b"/other"))
        return content

    monkeypatch.setattr(_own_parts, "_allowed_content", changed_after)
    config = app.path / "fedblade.toml"
    config.write_text(config.read_text().replace("own_parts.mine:own", f"{mine}:own"))
    for name in [each for each in sys.modules if each.startswith("fedblade_user_mine_")]:
        del sys.modules[name]
    Approval(app_bytes(app.path), node, [digest_of(mine.read_bytes())])
    assert (tmp_path / "mark").exists()
    assert not (tmp_path / "other").exists()
    assert b"/other" in mine.read_bytes()


def test_what_an_own_part_imports_of_own_parts_needs_a_digest_too(app, node, tmp_path):
    text = OWN.format(mark=str(tmp_path / "mark"), extra="from own_parts import helper  # noqa: F401\n")
    helper = b"VALUE = 1\n"
    (node.own_parts / "mine.py").write_text(text)
    (node.own_parts / "helper.py").write_bytes(helper)
    allowed = allow(node, digest_of(text.encode()))
    with pytest.raises(Misconfigured, match=r"'helper.py' of this node has the digest"):
        Approval(app_bytes(app.path), node, allowed)
    assert not (tmp_path / "mark").exists()
    Approval(app_bytes(app.path), node, allow(node, *allowed, digest_of(helper)))
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("reference", ["elsewhere.mine:own", "file"])
def test_installed_modules_and_files_need_a_digest_too(app, node, tmp_path, monkeypatch, reference):
    """Also those of packages; a package's empty `__init__` needs none."""
    content = OWN.format(mark=str(tmp_path / "mark"), extra="").encode()
    package = tmp_path / "site" / "elsewhere"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "mine.py").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    reference = reference if ":" in reference else f"{package / 'mine.py'}:own"
    config = app.path / "fedblade.toml"
    config.write_text(config.read_text().replace("own_parts.mine:own", reference))
    with pytest.raises(Misconfigured, match="which is not allowed"):
        Approval(app_bytes(app.path), node, [])
    assert not (tmp_path / "mark").exists()
    Approval(app_bytes(app.path), node, [digest_of(content)])
    (package / "__init__.py").write_text("import os\n")
    if reference.startswith("elsewhere"):
        with pytest.raises(Misconfigured, match=r"'__init__\.py' of this node"):
            Approval(app_bytes(app.path), node, [digest_of(content)])


def test_a_module_that_the_node_lacks_is_named_and_not_looked_for_by_importing(app, node):
    config = app.path / "fedblade.toml"
    config.write_text(config.read_text().replace("own_parts.mine:own", "no_such_package.mine:own"))
    with pytest.raises(Misconfigured, match=r"names 'no_such_package.mine:own', and this node has no module"):
        Approval(app_bytes(app.path), node, [])


@pytest.mark.parametrize(
    "change",
    [
        {"local": {"epochs": 1000}}, {"federation": {"rounds": 10_000}}, {"method": {"name": "elsewhere:own"}},
        {"evaluation": {"metrics": ["fedavg+elsewhere.py:own"]}},
    ],
)  # fmt: skip
def test_a_request_with_another_configuration_is_refused(node, tmp_path, change):
    make_app(tmp_path / "plain", None, {})
    approval = Approval(app_bytes(tmp_path / "plain"), node, [])
    facts = facts_of(approval)
    approval.check(facts)
    config = facts["config"] | {key: facts["config"][key] | value for key, value in change.items()}
    for other in (facts | {"config": config}, facts | {"data": "nodes"}, facts | {"num_classes": 7}):
        with pytest.raises(Misconfigured, match="is not the one in the app that this node has pinned"):
            approval.check(other)


CHOICES = [
    {"participation": "by_size"},
    {"participation": "fixed", "cohorts": [[0, 1], [2]]},
    {"participation": "power_of_choice", "candidates": 12},
    {"participation": "mine.py:everyone"},
]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice["participation"])
def test_a_node_needs_to_know_nothing_of_the_choice_of_cohorts(choice, tmp_path, monkeypatch):
    """The coordinator chooses alone, so its requests leave the choice out, and its function stays with it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def everyone(view):\n    return view.clients\n")
    make_app(tmp_path / "app", None, {"method": "fedavg", **choice})
    config, deployment = read_app(tmp_path / "app")
    approval = Approval(app_bytes(tmp_path / "app"), NodeFolder(tmp_path / "node"), [])
    approval.check(_greeting(config, deployment))
    with pytest.raises(NodeError, match="not the one in the app that this node has pinned"):
        approval.check(_greeting(config, deployment) | {"num_classes": 3})


def test_digests_are_of_the_files_and_of_nothing_else(app, tmp_path):
    before = app_digest(app)
    (app.local).mkdir()
    (app.local / "state.db").write_text("x")
    assert app_digest(app) == before
    assert own_part_digests(app) == {"mine.py": digest_of((app.path / PARTS / "mine.py").read_bytes())}
    (app.path / "fedblade.toml").write_text((app.path / "fedblade.toml").read_text() + "\n")
    assert app_digest(app) != before


def test_an_app_with_one_byte_more_than_the_pinned_one_is_refused(app):
    fab = app_bytes(app.path)
    check_app(fab, app_digest(app))
    with pytest.raises(Misconfigured, match="only the app with the digest"):
        check_app(fab + b" ", app_digest(app))
