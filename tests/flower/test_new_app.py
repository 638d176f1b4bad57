"""The app that `fedblade flower init` writes."""

import io
import sys
import tomllib
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr")
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate
from flwr.supercore.object_ref import load_app

from fedblade.core.errors import Misconfigured
from fedblade.engines.nodes import own_protocol
from fedblade.flower._node import Node
from fedblade.flower.app import read_app
from fedblade.flower.new_app import _project_name, make_app

# Flower asks a library of its own for something that is on its way out.
pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")


@pytest.fixture
def app(tmp_path):
    make_app(tmp_path / "my app", None, {"method": "fedprox", "mu": 0.5, "num_clients": 4, "clients_per_round": 2})
    return tmp_path / "my app"


def test_flower_accepts_the_app(app):
    config, warnings = load_and_validate(app / "pyproject.toml")
    assert not warnings
    assert config["project"]["dependencies"] == []
    assert config["tool"]["flwr"]["app"]["config"] == {"run-dir": "runs/flower", "resume": False}


def test_the_whole_configuration_is_written_and_read_back(app):
    table = tomllib.loads((app / "fedblade.toml").read_text())
    config, deployment = read_app(app)
    assert config.table() | {"flower": deployment.model_dump()} == table
    assert (config.method.name, config.federation.num_clients) == ("fedprox", 4)
    assert table["method"] == {"name": "fedprox", "mu": 0.5}


def test_neither_keys_nor_runs_travel_with_the_app(app):
    before = build_fab_from_disk(app)
    for name in (".flower/certs/node-1", ".flower/nodes/1/node.toml", "certs/ca.toml", "runs/a/config.toml"):
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text("secret = 1")
    assert build_fab_from_disk(app) == before
    names = set(zipfile.ZipFile(io.BytesIO(before)).namelist())
    assert {"pyproject.toml", "fedblade.toml", "server_app.py", "client_app.py"} <= names


def test_files_of_the_users_travel_with_the_app(app):
    (app / "ward.py").write_text("x = 1")
    assert "ward.py" in zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))).namelist()


def test_terms_of_deployment_are_set_like_any_key(tmp_path):
    make_app(tmp_path / "app", None, {"flower.quorum": 0.75, "flower.order": "arrival", "rounds": 2})
    _, deployment = read_app(tmp_path / "app")
    assert (deployment.quorum, deployment.order) == (0.75, "arrival")


def test_an_app_can_be_made_from_the_configuration_of_another(app, tmp_path):
    make_app(tmp_path / "second", str(app / "fedblade.toml"), {"flower.attempts": 9})
    first, second = (tomllib.loads((folder / "fedblade.toml").read_text()) for folder in (app, tmp_path / "second"))
    assert second == first | {"flower": first["flower"] | {"attempts": 9}}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("flower.quorun", 0.5, "unknown key 'flower.quorun'. Did you mean 'quorum'"),
        ("flower.quorum", 2.0, "flower.quorum"),
        ("flower.data", "nodes", "flower.num_classes is 0"),
        ("roundz", 3, "unknown key 'roundz'"),
        ("evaluation.on", "validation", "evaluation.on"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(tmp_path, key, value, said):
    with pytest.raises(Misconfigured, match=said):
        make_app(tmp_path / "app", None, {key: value})
    assert not (tmp_path / "app").exists()


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(Misconfigured, match="is not an empty folder"):
            make_app(folder, None, {})
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("value", "said"), [("3", "flower = 3 is not a table"), ("'x'", "flower = 'x' is not a table")]
)
def test_terms_that_are_no_table_are_refused(tmp_path, value, said):
    (tmp_path / "own.toml").write_text(f"flower = {value}\nmethod.name = 'fedavg'\n")
    with pytest.raises(Misconfigured, match=said):
        make_app(tmp_path / "app", str(tmp_path / "own.toml"), {"flower.quorum": 1.0})
    assert not (tmp_path / "app").exists()


def test_the_readme_says_how_nodes_with_data_are_deployed(app):
    text = " ".join((app / "README.md").read_text().split())
    assert '`data = "nodes"` (`flower.data`) and `num_classes`' in text
    assert "{" not in text.replace("{}", "")


OWN = """\
import fedblade.methods.fedavg
import fedblade.models.mlp
from fedblade.core.registry import metrics


def own(my_knob: float = 0.5):
    "Averages."
    return fedblade.methods.fedavg.fedavg()


def own_model(input_shape, hidden: tuple[int, ...] = (8,), dim: int = 4):
    "A small one."
    return fedblade.models.mlp.mlp(input_shape, hidden=hidden, dim=dim)


def own_metric():
    "As there is."
    return metrics.get("accuracy").make()
"""


@pytest.fixture
def fresh_modules(monkeypatch):
    """What an app is imported as is forgotten again."""
    before = dict(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - set(before):
        if name in ("server_app", "client_app"):
            del sys.modules[name]


@pytest.mark.usefixtures("fresh_modules")
def test_files_of_the_users_are_copied_and_found_where_the_app_is_unpacked(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path / "here")
    keys = {"method": "mine.py:own+feddecorr", "my_knob": 0.25, "model": "mine.py:own_model", "num_clients": 2}
    keys |= {"clients_per_round": 2, "evaluation.metrics": ["mine.py:own_metric"]}
    make_app(tmp_path / "app", None, keys)
    packed = build_fab_from_disk(tmp_path / "app")
    (tmp_path / "here" / "mine.py").unlink()
    for folder in ("server", "node"):
        zipfile.ZipFile(io.BytesIO(packed)).extractall(tmp_path / folder)
    config, _ = read_app(tmp_path / "server")
    table = config.table()
    assert (table["method"]["name"], table["method"]["my_knob"]) == ("own_parts.mine:own+feddecorr", 0.25)
    assert (table["model"]["name"], table["evaluation"]["metrics"]) == (
        "own_parts.mine:own_model",
        ["own_parts.mine:own_metric"],
    )
    assert not [path for path in (tmp_path / "app").rglob("*.*") if str(tmp_path) in path.read_text()]
    # A node has only its own copy.
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_parts"]:
        del sys.modules[name]
    load_app("client_app:app", RuntimeError, tmp_path / "node")
    hello = {**own_protocol(), "config": table, "num_classes": 0, "data": "shares"}
    found, _ = Node((1,), None, tmp_path / "state", "cpu").answer("hello", hello, {})
    assert sum(found["clients"]["1"]["counts"]) > 0
    assert sys.modules["own_parts.mine"].__file__ == str(tmp_path / "node" / "own_parts" / "mine.py")


def test_files_that_cannot_be_modules_of_the_app_are_refused(tmp_path):
    for name in ("my-method.py", "a/mine.py", "b/mine.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(OWN)
    for keys, said in (
        ({"method": f"{tmp_path}/my-method.py:own"}, "my-method.py' cannot be a module of the app. Rename"),
        ({"method": f"{tmp_path}/a/mine.py:own", "model": f"{tmp_path}/b/mine.py:own_model"}, "the same name"),
    ):
        with pytest.raises(Misconfigured, match=said):
            make_app(tmp_path / "app", None, keys)
        assert not (tmp_path / "app").exists()


@given(st.sampled_from(["fedavg", "feddr_plus", "fedavg-ft", "fedprox+feddecorr", "fedbabu+kd", "/a/b c.py:mine"]))
def test_project_names_are_as_flower_wants_them(method):
    name = _project_name(method)
    assert name.isascii()
    assert name.replace("-", "").isalnum()
    assert len(name) <= 40
    assert name[-1] != "-"
