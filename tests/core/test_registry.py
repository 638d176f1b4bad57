import sys

import pytest

from fedblade.core import registry
from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.registry import Registry, methods
from fedblade.methods import compose


@pytest.fixture
def parts():
    """A registry of its own, so that nothing here reaches the library's."""
    return Registry("method", "fedblade.regularisers")


def test_a_function_is_filed_under_its_own_name_or_another(parts):
    @parts.register(paper="X")
    def plain():
        """First line.

        Second line.
        """

    @parts.register("other")
    def named():
        pass

    assert parts.get("plain").make is plain
    assert parts.get("other").make is named
    assert parts.names() == ["other", "plain"]
    assert parts.get("plain").info == {"paper": "X"}
    assert parts.get("plain").summary == "First line."
    assert parts.get("other").summary == ""


def test_an_unknown_name_brings_the_nearest_one(parts):
    parts.register("fedavg")(lambda: None)
    with pytest.raises(Misconfigured, match=r"unknown method 'fedagv'\. Did you mean 'fedavg'\?"):
        parts.get("fedagv")
    with pytest.raises(Misconfigured, match=r"Choose from: fedavg\."):
        parts.get("zzzzzz")


def test_nearest_says_nothing_when_there_is_nothing():
    assert nearest("x", []) == ""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("Resnet18", " Did you mean 'resnet18'?"),
        ("CIFAR-10", " Did you mean 'cifar10'?"),
        ("cnn", " Did you mean 'small_cnn'?"),
        ("resnet", " Did you mean 'resnet18' or 'resnet20'?"),
        ("mpl", " Did you mean 'mlp'?"),
    ],
)
def test_letters_and_parts_of_a_name_are_enough_to_be_understood(given, meant):
    names = ["cifar10", "mlp", "resnet18", "resnet20", "small_cnn", *(f"x{number}" for number in range(20))]
    assert nearest(given, names) == meant


def test_registering_a_name_twice_is_an_error(parts):
    parts.register("same")(compose)
    with pytest.raises(Misconfigured, match=r"'same' is registered twice.*another name"):
        parts.register("same")(nearest)


def test_importing_the_same_function_again_is_no_clash(parts):
    parts.register("same")(nearest)
    parts.register("same")(nearest)
    assert parts.get("same").make is nearest


def test_knobs_are_the_parameters_with_a_default(parts):
    @parts.register()
    def part(shape: int, mu: "float" = 0.5, name: str = "x"):
        return shape, mu, name

    knobs = parts.get("part").knobs()
    assert list(knobs) == ["mu", "name"]
    assert knobs["mu"].default == 0.5
    assert knobs["mu"].annotation is float


def write(path, body):
    path.write_text(body)
    return path


def test_a_part_in_a_file_by_reference(parts, tmp_path):
    path = write(tmp_path / "mine.py", "def special(mu=2.0):\n    'Own.'\n    return ('made', mu)\n")
    entry = parts.get(f"{path}:special")
    assert entry.make(mu=3.0) == ("made", 3.0)
    assert entry.name == f"{path}:special"
    assert entry.knobs()["mu"].default == 2.0


def test_files_of_one_name_in_two_folders_are_two_modules(parts, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = write(tmp_path / "a" / "mine.py", "def part():\n    return 1\n")
    two = write(tmp_path / "b" / "mine.py", "def part():\n    return 2\n")
    assert (parts.get(f"{one}:part").make(), parts.get(f"{two}:part").make()) == (1, 2)


def test_a_missing_attribute_names_what_the_file_has(parts, tmp_path):
    path = write(tmp_path / "mine.py", "def special():\n    pass\n")
    with pytest.raises(Misconfigured, match=r"has no method 'specail'\. Did you mean 'special'\?"):
        parts.get(f"{path}:specail")


def test_an_attribute_that_cannot_be_called_is_missing(parts, tmp_path):
    path = write(tmp_path / "mine.py", "special = 3\n")
    with pytest.raises(Misconfigured, match="has no method 'special'"):
        parts.get(f"{path}:special")


def test_a_missing_file_is_named(parts, tmp_path):
    with pytest.raises(Misconfigured, match=r"no such file .*absent\.py"):
        parts.get(f"{tmp_path}/absent.py:x")


def test_a_file_that_raises_leaves_no_half_module(parts, tmp_path):
    path = write(tmp_path / "broken.py", "raise ZeroDivisionError\n")
    before = set(sys.modules)
    for _ in range(2):
        with pytest.raises(Misconfigured, match=r"broken\.py' cannot be imported: ZeroDivisionError"):
            parts.get(f"{path}:x")
    assert set(sys.modules) == before


def test_a_part_in_a_module_by_reference(parts):
    assert parts.get("fedblade.core.errors:nearest").make is nearest
    with pytest.raises(Misconfigured, match="cannot import 'no_such_module_anywhere'"):
        parts.get("no_such_module_anywhere:x")


def test_built_in_methods_are_found():
    assert {"fedavg", "fedprox", "feddecorr", "fedetf", "fedblade"} <= set(methods.names())


def test_plugins_are_loaded_once(monkeypatch):
    loaded = []

    class Point:
        def load(self):
            loaded.append(1)

    monkeypatch.setattr(registry, "_plugins_loaded", False)
    monkeypatch.setattr(registry.importlib.metadata, "entry_points", lambda group: [Point()] if group else [])
    registry.load_plugins()
    registry.load_plugins()
    assert loaded == [1]


def test_a_composed_name_adds_regularisers_in_order(tmp_path):
    composition = compose("fedprox+feddecorr+lddecorr")
    method = composition.build({"mu": 0.5, "feddecorr": {"lambda_decorr": 0.2}, "lddecorr": {}})
    assert [type(term).__name__ for term in method.losses] == ["CrossEntropy", "Proximal", "FedDecorr", "LDDecorr"]
    assert [term.weight for term in method.losses] == [1.0, 0.5, 0.2, 0.005]


def test_a_reference_can_be_composed(tmp_path):
    path = write(tmp_path / "mine.py", "from fedblade.methods.fedavg import fedavg as special\n")
    assert len(compose(f"{path}:special+lddecorr").build({}).losses) == 2


def test_an_unknown_regulariser_brings_the_nearest_one():
    with pytest.raises(Misconfigured, match=r"unknown regulariser 'lddecor'\. Did you mean 'lddecorr'\?"):
        compose("fedavg+lddecor")
