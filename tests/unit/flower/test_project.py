"""The app that `fedblade flower init` writes."""

import io
import tomllib
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr")
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate

from fedblade.core.errors import Misconfigured
from fedblade.flower._app import read_app
from fedblade.flower._project import _project_name, make_app

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
    for name in (".flower/certs/node-1", ".flower/state.json", ".flower/nodes/1/node.toml", "runs/a/config.toml"):
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


@given(st.sampled_from(["fedavg", "feddr_plus", "fedavg-ft", "fedprox+feddecorr", "fedbabu+kd", "/a/b c.py:mine"]))
def test_project_names_are_as_flower_wants_them(method):
    name = _project_name(method)
    assert name.isascii()
    assert name.replace("-", "").isalnum()
    assert len(name) <= 40
    assert name[-1] != "-"
