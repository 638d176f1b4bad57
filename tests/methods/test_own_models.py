"""A user's module in a run: where the first weights come from, what becomes of the last layer, and what is said."""

import json
import tomllib

import pytest
import tomli_w
import torch
from torch import nn

import fedblade
from fedblade.core.errors import Misconfigured
from fedblade.core.tensorfile import write_tensors
from fedblade.runs import RunListener, prepare
from support.own_modules import classifier, half_frozen
from support.small_federation import DIM, NUM_CLASSES, assert_different, assert_same_bits, configure, vectors

DATA = vectors()


class StopAfterOne(RunListener):
    def on_round(self, record):
        raise KeyboardInterrupt


def setup_of(module, method="fedavg", **changes):
    return prepare(configure(method, model="object", **changes), DATA, module)


def test_the_head_starts_from_the_weights_of_the_last_layer():
    """Where it has the form of the layer; else the method's head takes its place, and either is said."""
    module = classifier()
    weight, bias = module[6].weight.double(), module[6].bias.double()
    for method in ("fedavg", "fedbabu", "fedrod"):
        setup = setup_of(module, method)
        head = setup.start.fixed if method == "fedbabu" else setup.start.params
        for prefix in ("head", "personal_head")[: 2 if method == "fedrod" else 1]:
            assert torch.equal(head[f"{prefix}.weight"], weight)
            assert torch.equal(head[f"{prefix}.bias"], bias)
        assert setup.notes[0] == (
            "model: 16 features after layer '5' (ReLU); its last layer '6' (16 → 5) is cut off and the head starts "
            "from its weights. If the module returns features, set model.output=features."
        )
    module[6] = nn.Linear(DIM, NUM_CLASSES, bias=False)
    assert torch.equal(setup_of(module).start.params["head.bias"], torch.zeros(NUM_CLASSES, dtype=torch.float64))
    for method, changes in (("fedetf", {}), ("fedavg", {"model.neck": DIM})):
        setup = setup_of(module, method, **changes)
        assert f"is cut off and the head of {method} takes its place" in setup.notes[0]
        assert not any(torch.equal(leaf, module[6].weight.double()) for leaf in setup.start.params.values())


def test_a_module_that_is_a_layer_and_a_single_tensor_are_called_so():
    alone = setup_of(nn.Linear(6, NUM_CLASSES))
    assert "model: 6 features after the input; the module itself (6 → 5) is cut off and" in alone.notes[0]
    assert "9 features, the output of the module itself. If" in setup_of(nn.Linear(6, 9)).notes[0]
    flat = setup_of(nn.Flatten())
    assert flat.notes == ("model: 6 features after the module itself (Flatten), as the module returns them.",)
    module = classifier()
    module[0].bias.requires_grad_(False)
    assert "model: 1 tensor (10 numbers) is frozen: it stays and does not travel" in setup_of(module).notes
    with pytest.raises(Misconfigured, match="model Sequential cannot take inputs"):
        setup_of(nn.Sequential(nn.Linear(7, 4), nn.ReLU()), **{"model.neck": 3})


def test_the_output_is_what_the_user_says():
    module = classifier()
    as_features = setup_of(module, **{"model.output": "features"})
    assert as_features.problem.network.dim == NUM_CLASSES
    assert as_features.notes[0] == "model: 5 features, as the module returns them."
    wide = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 100))
    assert setup_of(wide).problem.network.dim == 100
    assert (
        "the output of its last layer '2'. If the layer is a classifier, set model.output=logits."
        in (setup_of(wide).notes[0])
    )
    cut = setup_of(wide, **{"model.output": "logits"})
    assert cut.problem.network.dim == 8
    assert "its last layer '2' (8 → 100) is cut off and the head of fedavg takes its place" in cut.notes[0]
    assert setup_of(wide, **{"model.output": "logits"}).config.table()["model"]["output"] == "logits"


def test_seeds_start_from_the_weights_that_are_given_and_say_so():
    module = classifier()
    first, second = (setup_of(module, seed=seed) for seed in (0, 1))
    assert_same_bits(first.start.params, second.start.params)
    assert any("the spread over seeds leaves initialisation out (model.init=seed" in note for note in first.notes)
    assert first.config.table()["model"]["init"] == "given"


def test_seeds_draw_a_module_anew_if_asked():
    """All but its frozen layers, from the seed alone."""
    module, drawn = half_frozen(), {"model.init": "seed"}
    before = {name: leaf.clone() for name, leaf in module.state_dict().items()}
    first, again, second = (setup_of(module, seed=seed, **drawn) for seed in (0, 0, 1))
    assert_same_bits(first.start.flat(), again.start.flat())
    for name, leaf in first.start.params.items():
        norm = ".4." in name
        assert torch.equal(leaf, second.start.params[name]) == norm, name
    assert_same_bits(first.start.fixed, second.start.fixed)
    assert torch.equal(first.start.fixed["body.module.1.running_mean"].float(), before["1.running_mean"])
    assert not any("initialisation" in note for note in first.notes)
    assert any("7 tensors (111 numbers) are frozen" in note for note in first.notes)
    assert_same_bits(before, dict(module.state_dict()))
    # What the layers draw is what they draw when they are made.
    torch.manual_seed(0)
    fresh = nn.Linear(10, DIM).weight
    assert abs(first.start.params["body.module.3.weight"].std() / fresh.std() - 1) < 0.2


class Token(nn.Module):
    """A parameter of the user's own, which nothing says how to draw."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.ones(6))
        self.attention = nn.MultiheadAttention(6, 1, batch_first=True)

    def forward(self, x):
        return self.attention(x[:, None], x[:, None], x[:, None])[0][:, 0] * self.token


class Drawn(Token):
    def reset_parameters(self):
        nn.init.normal_(self.token)


def test_what_cannot_be_drawn_is_an_error():
    drawn = {"model.init": "seed"}
    with pytest.raises(Misconfigured, match=r"parameters of Token .* has no method reset_parameters.*model.init=given"):
        setup_of(Token(), **drawn)
    first, second = (setup_of(Drawn(), seed=seed, **drawn) for seed in (0, 1))
    assert_different(first.start.params, second.start.params)
    frozen = Token()
    frozen.token.requires_grad_(False)
    assert torch.equal(setup_of(frozen, **drawn).start.fixed["body.token"], torch.ones(6, dtype=torch.float64))
    with pytest.raises(Misconfigured, match=r"model.init = 'given' is for a model of your own; model 'mlp' is drawn"):
        configure(**{"model.init": "given"})
    assert configure().table()["model"]["init"] == "seed"
    with pytest.raises(Misconfigured, match="Module"):
        fedblade.run(model=3, **drawn)


def test_a_run_says_what_it_found_and_opens_without_the_newer_settings(tmp_path, caplog):
    arrays = (DATA.train.inputs, DATA.train.labels, DATA.test.inputs, DATA.test.labels)
    settings = {"rounds": 1, "num_clients": 4, "clients_per_round": 4, "partition.min_size": 4, "model": half_frozen()}
    result = fedblade.run(dataset=arrays, out=tmp_path / "run", **settings)
    told = [record.message for record in caplog.records if record.name == "fedblade"]
    for words in ("its last layer '6' (16 → 5) is cut off", "frozen", "initialisation"):
        assert sum(words in line for line in told) == 1, told
    config = tmp_path / "run" / "config.toml"
    older = tomllib.loads(config.read_text())
    for newer in ("output", "init"):
        del older["model"][newer]
    config.write_text(tomli_w.dumps(older))
    inputs = torch.from_numpy(DATA.test.inputs)
    assert torch.equal(fedblade.load(tmp_path / "run", model=half_frozen(1))(inputs), result.model(inputs))


def test_a_run_is_not_continued_or_returned_for_another_module(tmp_path, caplog):
    """Cut short or finished. Weights that train may differ, and a line says so unless `model.init=seed` draws them.

    A folder that does not say what it was given is not compared.
    """
    arrays = (DATA.train.inputs, DATA.train.labels, DATA.test.inputs, DATA.test.labels)
    small = {"dataset": arrays, "rounds": 2, "num_clients": 2, "clients_per_round": 2, "partition": "iid"}
    activation, thawed = half_frozen(), half_frozen()
    activation[2] = nn.Tanh()
    thawed[0].bias.requires_grad_(True)
    for init in ("given", "seed"):
        keys = {**small, "out": tmp_path / init, "model.init": init, "method": "fedavg"}
        with pytest.raises(KeyboardInterrupt):
            fedblade.run(model=half_frozen(), listener=StopAfterOne(), **keys)
        for finished in (False, True):
            for other, part in ((activation, "layers"), (thawed, "layers"), (half_frozen(1), "frozen weights")):
                with pytest.raises(Misconfigured, match=f"the {part} of the module differ .*{init}' .* another --out"):
                    fedblade.run(model=other, resume=True, **keys)
            made_anew = half_frozen()
            nn.init.normal_(made_anew[3].weight)
            caplog.clear()
            assert fedblade.run(model=made_anew, resume=True, **keys).summary["rounds"] == 2, finished
            assert ("started from other weights" in caplog.text) == (init == "given")
    stored = tmp_path / "given" / "partition.json"
    older = {key: value for key, value in json.loads(stored.read_text()).items() if key != "module"}
    stored.write_text(json.dumps(older))
    keys |= {"out": tmp_path / "given", "model.init": "given"}
    assert fedblade.run(model=half_frozen(1), resume=True, **keys).summary["rounds"] == 2


class WithFeatures(nn.Module):
    """A last layer of a name of its own, which `features(x)` leaves out."""

    def __init__(self):
        super().__init__()
        self.a, self.l2 = nn.Linear(6, 8), nn.Linear(8, NUM_CLASSES)

    def features(self, x):
        return self.a(x).relu()

    def forward(self, x):
        return self.l2(self.features(x))


class Plain(WithFeatures):
    features = None

    def forward(self, x):
        return self.l2(self.a(x).relu())


class Probabilities(Plain):
    def forward(self, x):
        return super().forward(x).softmax(1)


def test_runs_from_before_the_last_layer_was_found_are_opened(tmp_path):
    """Their files hold that layer in the body, used or not; a later run that lacks a tensor is another module's."""
    folder, x = tmp_path / "old", torch.rand(3, 6)
    folder.mkdir()
    facts = {"input_shape": [6], "num_classes": NUM_CLASSES, "mean": [0.0], "std": [1.0], "unit": 1.0}
    (folder / "config.toml").write_text(configure(model="object").to_toml())
    for kind, prefix in ((Plain, "body."), (Probabilities, "body."), (WithFeatures, "body.module.")):
        module, head = kind(), nn.Linear(8 if kind is WithFeatures else NUM_CLASSES, NUM_CLASSES)
        body = module.features if kind is WithFeatures else module
        names = {prefix: module, "head.": head}
        stored = {f"params/{p}{name}": leaf for p, m in names.items() for name, leaf in m.state_dict().items()}
        write_tensors(folder / "model.safetensors", stored, facts)
        for revisions in (None, {}, {"model object": 0}):
            (folder / "partition.json").write_text(json.dumps({} if revisions is None else {"revisions": revisions}))
            opened = fedblade.load(folder, model=kind())
            assert torch.allclose(opened.float()(x), head(body(x)), atol=1e-6)
        with pytest.raises(
            Misconfigured, match="If this is the module of the run, another version of fedblade made the run"
        ):
            fedblade.load(folder, model=nn.Linear(6, 9))
        (folder / "partition.json").write_text(json.dumps({"revisions": {"model object": 1}}))
        with pytest.raises(Misconfigured, match=r"the model lacks|the run lacks|cannot be cut off"):
            fedblade.load(folder, model=kind())


def test_a_function_in_a_file_is_treated_alike(tmp_path):
    """It is called for every seed, so its weights are drawn; what it returns is looked at as a module is."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\n"
        "def net(input_shape, width: int = 8):\n"
        "    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 5))\n"
    )
    name = {"model": f"{file}:net"}
    first, second = (prepare(configure(**name, seed=seed), DATA) for seed in (0, 1))
    assert_different(first.start.params, second.start.params)
    assert first.problem.network.dim == 8
    assert first.notes == (
        "model: 8 features after layer '1' (ReLU); its last layer '2' (8 → 5) is cut off and the head starts from its "
        "weights. If the module returns features, set model.output=features.",
    )
    assert prepare(configure(), DATA).notes == ()


def test_a_function_that_makes_the_same_weights_for_every_seed_is_told(tmp_path):
    """It draws and then replaces, as one does that loads a file; `model.init=seed` draws for it."""
    file = tmp_path / "fixed.py"
    file.write_text(
        "from torch import nn\n"
        "def net(input_shape):\n"
        "    made = nn.Linear(6, 8)\n"
        "    nn.init.ones_(made.weight), nn.init.zeros_(made.bias)\n"
        "    return nn.Sequential(made, nn.ReLU())\n"
        "def drawn(input_shape):\n"
        "    return nn.Sequential(nn.Linear(6, 8), nn.ReLU())\n"
    )
    for name, init, same in (
        ("net", "auto", True),
        ("net", "given", True),
        ("net", "seed", False),
        ("drawn", "given", False),
    ):
        changes = {"model": f"{file}:{name}", "model.init": init}
        first, second = (prepare(configure(**changes, seed=seed), DATA) for seed in (0, 1))
        assert torch.equal(*(each.start.params["body.0.weight"] for each in (first, second))) == same
        assert any("leaves initialisation out" in note for note in first.notes) == same
