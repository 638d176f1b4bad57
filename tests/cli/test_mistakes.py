"""Mistakes of the user's: status 2, one line that says what was given and what to do, no traceback."""

import re

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("setting", "given", "near"),
    [
        ("method=fedblad", "fedblad", "'fedblade'"),
        ("method=fedavg+fedecorr", "fedecorr", "'feddecorr'"),
        ("model=small_cn", "small_cn", "'small_cnn'"),
        ("dataset=digit", "digit", "'digits'"),
        ("partition=dirichle", "dirichle", "'dirichlet'"),
        ("roundz=3", "roundz", "'rounds'"),
        ("methd=fedavg", "methd", "'method'"),
        ("dtaset=digits", "dtaset", "'dataset'"),
        ("mdel=mlp", "mdel", "'model'"),
        ("metrics=acuracy", "acuracy", "'accuracy'"),
        ("federation.roundz=3", "federation.roundz", "'federation.rounds'"),
        ("metrics=['acuracy']", "acuracy", "'accuracy'"),
        ("augment=crop_flp", "crop_flp", "'crop_flip'"),
        ("engine=sequentiel", "sequentiel", "'sequential'"),
        ("every=2", "every", "checkpoint.every"),
        ("rounds=many", '"many"', "integer"),
        ("alpha=0", "alpha", "above 0"),
        ("alpha=-0.5", "-0.5", "above 0"),
        ("alpha=nan", "nan", "finite"),
        ("clients_per_round=21", "clients_per_round = 21", "num_clients = 20"),
        ("num_clients=5000", "5000", "clients"),
        ("min_size=500", "min_size=500", "min_size"),
        ("device=cuda:7", "cuda:7", "device=cpu"),
        ("device=tpu", "tpu", "cpu"),
        ("device=mps", "mps", "cpu"),
        ("device=meta", "meta", "cpu"),
        ("seed=-1", "-1", "0"),
        ("tau=0", "tau", "above 0"),
        ("dim=0", "dim", "0"),
        ("dim=-3", "dim", "-3"),
        ("rounds=1e30", "1e+30", "integer"),
        ("epochs=99999999999999999999", "99999999999999999999", "less than 2147483648"),
        ("dataset=.:digits", "'.'", "Correct the module"),
        ("method=nowhere.py:scaffold", "nowhere.py", ".py"),
        ("method=no_such_package:scaffold", "no_such_package", "Install"),
        ("rounds", "'rounds'", "key=value"),
        ("=3", "'=3'", "key=value"),
    ],
)
def test_a_bad_setting_is_refused(cli, tmp_path, setting, given, near):
    message = cli("run", "--set", setting, "--out", "mine").mistake()
    assert message.startswith("error: ")
    assert given in message
    assert near in message
    assert not (tmp_path / "mine").exists()


TAU = "'tau' is a knob of methods fedfm, fedntd, fedrcl, fedsol and moon; of regularisers kd, moon and ntd."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["method=fedavg", "method.tau=3"],
            "unknown key 'method.tau': method 'fedavg' has no knob 'tau'; it has none. " + TAU,
        ),
        (["method=fedavg", "tau=3"], "unknown key 'tau': method 'fedavg' has no knob 'tau'; it has none. " + TAU),
        (
            ["method=fedprox", "tau=3"],
            "unknown key 'tau': method 'fedprox' has no knob 'tau'. Choose from: mu. " + TAU,
        ),
        (
            ["method=fedprox", "mmu=3"],
            "unknown key 'mmu'. Did you mean 'mu' (method.mu)? `fedblade list settings WORD` finds a setting.",
        ),
        (
            ["method=dotreg+fd", "method.fd.bta=1"],
            "unknown key 'method.fd.bta': method 'dotreg+fd' has no knob 'fd.bta'. Did you mean 'fd.beta'? "
            "Choose from: fd, fd.beta, fd.teacher_norm, ft, ft.loss.",
        ),
        (
            ["method=fedavg", "pba.tau=3"],
            "unknown key 'pba.tau': method 'fedavg' has no knob 'pba.tau'; it has none. " + TAU,
        ),
        (
            ["federatoin.rounds=3"],
            "unknown key 'federatoin.rounds': 'rounds' belongs to [federation]. Write federation.rounds.",
        ),
        (["method=fedprox", "mu=-1"], "mu=-1.0: expected a number from 0 on; 0 leaves the term out."),
    ],
)
def test_a_knob_that_a_method_lacks_is_answered_with_those_it_has(cli, settings, message):
    argv = [word for setting in settings for word in ("--set", setting)]
    assert cli("run", *argv).mistake().strip() == f"error: {message}"


def data(path):
    return ["--set", "dataset=arrays", "--set", f"dataset.path={path}", "--set", "partition=iid"]


MLP = ["--set", "model=mlp", "--set", "num_clients=6", "--set", "clients_per_round=3", "--set", "rounds=1"]


def test_a_split_that_cannot_be_had_says_what_was_tried(cli, write_npz):
    skew = ["--set", "partition=dirichlet", "--set", "alpha=0.001", "--set", "min_size=10"]
    message = cli("run", *data(write_npz()), *skew, *MLP).mistake()
    assert "min_size=10" in message
    assert "alpha=0.001" in message
    assert re.search(r"none of \d+ draws", message)


def test_the_arrays_that_the_other_cases_break_are_fine(cli, write_npz):
    cli("run", *data(write_npz()), *MLP, "--out", "mine").done()


LABELS = np.arange(60) % 3


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y_train": LABELS * 0, "y_test": LABELS[:30] * 0}, ["one class"]),
        ({"y_train": LABELS * 0 + 2, "y_test": LABELS[:30] * 0 + 2}, ["one class"]),
        ({"y_train": LABELS - 1}, ["-1", "0 to 3"]),
        ({"y_test": LABELS[:30] - 5}, ["-5", "0 to 5"]),
        ({"y_train": np.arange(60) + 10**15}, ["63 different labels", "1000000000000059"]),
        ({"y_train": LABELS.astype(np.float32)}, ["float32", "integer"]),
        ({"y_train": LABELS[:50]}, ["labels of shape (50,)", "(60, 8)"]),
        ({"x_test": np.zeros((30, 9), dtype=np.float32)}, ["(8,)", "(9,)"]),
        ({"x_train": np.full((60, 8), np.nan, dtype=np.float32)}, ["NaN"]),
        ({"x_train": np.full((60, 8), "a")}, ["training inputs", "<U1"]),
        ({"x_train": np.zeros((60, 8), dtype=np.uint8)}, ["uint8", "float32"]),
        ({"x_train": np.zeros((0, 8), dtype=np.float32), "y_train": LABELS[:0]}, ["no training samples"]),
    ],
    ids=["one-class", "one-class-2", "negative", "negative-test", "huge", "float-labels", "too-few-labels", "shapes",
         "nan", "text", "two-types", "empty"],
)  # fmt: skip
def test_bad_arrays_are_refused(cli, write_npz, arrays, words):
    message = cli("run", *data(write_npz(**arrays)), *MLP, "--out", "mine").mistake()
    assert [word for word in words if word not in message] == []


def test_objects_in_arrays_are_refused_not_unpickled(cli, write_npz):
    path = write_npz(x_train=np.array([{"a": 1}] * 60, dtype=object))
    assert "data.npz" in cli("run", *data(path), *MLP).mistake()


def test_images_of_the_wrong_shape_are_refused_by_the_model(cli, write_npz):
    message = cli("run", *data(write_npz()), "--set", "rounds=1").mistake()
    assert "small_cnn" in message
    assert "(8,)" in message
    assert "mlp" in message


def test_a_missing_array_is_named(cli, tmp_path):
    np.savez(tmp_path / "data.npz", images=np.zeros((3, 2)), y_train=np.zeros(3))
    assert "no array 'x_train'" in cli("run", *data("data.npz"), *MLP).mistake()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 torn", b"\x80\x04K\x01."])
def test_a_file_that_is_no_archive_is_refused(cli, tmp_path, content):
    (tmp_path / "data.npz").write_bytes(content)
    assert "data.npz" in cli("run", *data("data.npz"), *MLP).mistake()


def test_a_torn_archive_is_refused(cli, write_npz):
    path = write_npz()
    path.write_bytes(path.read_bytes()[:-300])
    assert "data.npz" in cli("run", *data(path), *MLP).mistake()


def test_a_single_array_is_refused(cli, tmp_path):
    np.save(tmp_path / "data.npy", np.zeros((3, 2)))
    assert "data.npy" in cli("run", *data("data.npy"), *MLP).mistake()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "nowhere.toml"], ["nowhere.toml"]),
        (["run", "quickstar"], ["'quickstart'"]),
        (["run", "--set", "dataset=arrays", "--set", "dataset.path=nowhere.npz"], ["nowhere.npz"]),
        (["run", "--set", "dataset=arrays"], ["dataset.path"]),
        (["run", "--resume"], ["--resume", "--out"]),
        (["compare"], ["--methods"]),
        (["compare", "--methods", "fedavg,fedprx"], ["'fedprox'"]),
        (["compare", "fb-t1", "--methods", "fedavg"], ["grid", "`fedblade reproduce fb-t1 --where method=A"]),
        (["run", "fb-t1"], ["grid", "--where"]),
        (["compare", "--methods", "fedavg", "--seeds", "1,two"], ["1,two", "1,2,3"]),
        (["compare", "--methods", "fedavg", "--seeds", "1.5"], ["1.5"]),
        (["compare", "--methods", "fedavg", "--seeds", "-1"], ["-1"]),
        (["show", "fedblad"], ["'fedblade'"]),
        (["report", "nowhere"], ["nowhere"]),
        (["partition", "--plot", "map.gif"], ["map.gif", ".svg"]),
        (["partition", "--save", "split.toml"], ["split.toml", ".json"]),
        (["partition", "--compare", "--save", "split.json"], ["--compare", "--save"]),
        (["partition", "--compare", "--set", "partition=iid"], ["'iid'", "alpha"]),
        (["partition", "--set", "partition=nope"], ["nope"]),
        (["list", "method"], ["'method'", "'methods'"]),
        (["list", "modles"], ["'modles'", "'models'"]),
        (["list", "xyzzy"], ["'xyzzy'", "methods"]),
        (["lst"], ["lst"]),
        (["run", "--rounds", "3"], ["--rounds", "A setting is changed with --set rounds=VALUE."]),
        (["run", "rounds=3"], ["A setting is changed with --set rounds=3."]),
        (["run", "fedavg"], ["It is a method: give method='fedavg' in Python, or --set method=fedavg"]),
        (["run", "."], ["folder", "--resume --out DIR"]),
        (["run", "--set", "method=own.py"], ["method 'own.py' is a file; name the function in it: own.py:FUNCTION."]),
        (["run", "--set", "partition=os:getcwd"], ["partition 'os:getcwd' returned a str", "split(labels,"]),
        (["run", "--set", "engine=os:getcwd"], ["'os:getcwd' cannot be called with 1 argument"]),
        (["sweep", "--grid", "lr=0.1", "--grid", "lr=0.2"], ["'lr' is an axis twice", "--grid lr=v1,v2"]),
        (["run", "--engine", "gpu"], ["Choose from: auto, sequential, stacked."]),
        (["run", "--seed", "one"], ["one"]),
        (["run", "--out"], ["--out"]),
        (["show"], ["METHOD"]),
    ],
)  # fmt: skip
def test_a_bad_command_line_is_refused(cli, argv, words):
    message = cli(*argv).mistake()
    assert [word for word in words if word not in message] == []


def test_a_folder_in_use_is_refused(cli, small, tmp_path):
    cli("run", *small, "--out", "mine").done()
    assert "already holds a run" in cli("run", *small, "--out", "mine").mistake()
    changed = cli("run", *small, "--set", "lr=0.5", "--resume", "--out", "mine").mistake()
    assert "optimizer.lr = 0.02" in changed
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    assert "not empty" in cli("run", *small, "--out", "other").mistake()
    assert "notes.txt" in cli("run", *small, "--out", "other/notes.txt").mistake()
    assert "notes.txt" in cli("run", *small, "--out", "other/notes.txt/run").mistake()


def test_a_picture_that_cannot_be_written_is_a_mistake(cli, tmp_path):
    (tmp_path / "file").write_text("")
    assert "file" in cli("partition", "--plot", "file/map.svg").mistake()
    assert "file" in cli("partition", "--save", "file/split.json").mistake()


def test_a_broken_file_is_refused_with_its_line(cli, tmp_path):
    (tmp_path / "bad.toml").write_text("seed = 1\n[local\n")
    message = cli("run", "bad.toml").mistake()
    assert "bad.toml" in message
    assert "line 2" in message


@pytest.mark.parametrize("content", ["def method(:\n", "import no_such_thing\n", "1 / 0\n"])
def test_a_users_file_that_does_not_import_is_named(cli, tmp_path, content):
    (tmp_path / "own.py").write_text(content)
    assert "own.py" in cli("run", "--set", "method=own.py:method").mistake()


def test_a_name_that_a_users_file_lacks_is_refused_with_the_nearest(cli, tmp_path):
    (tmp_path / "own.py").write_text("def scaffold():\n    pass\n")
    assert "'scaffold'" in cli("run", "--set", "method=own.py:scafold").mistake()


@pytest.mark.parametrize(
    "knob", ["gain=1.0", "gain: int | None = None", "gain: object = object()"], ids=["untyped", "none", "object"]
)
def test_a_users_knob_that_cannot_be_configured_is_explained(cli, small, tmp_path, knob):
    code = "from fedblade.methods.fedavg import fedavg\ndef method({knob}):\n    return fedavg()\n"
    (tmp_path / "own.py").write_text(code.replace("{knob}", knob))
    answer = cli("run", *small, "--set", "method=own.py:method", "--out", "mine")
    assert answer.status == 0 or "gain" in answer.mistake()


@pytest.mark.parametrize("value", ["None", "42", "(1, 2)"])
def test_a_users_method_that_makes_no_method_is_explained(cli, small, tmp_path, value):
    (tmp_path / "own.py").write_text(f"def method():\n    return {value}\n")
    assert "own.py:method" in cli("run", *small, "--set", "method=own.py:method").mistake()


@pytest.mark.thorough
def test_a_missing_extra_is_named_with_the_command_that_installs_it(fresh_cli, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['tensorboard'] = None\n")
    argv = ("run", "--set", "trackers=tensorboard", "--out", "mine")
    message = fresh_cli(*argv, PYTHONPATH=str(tmp_path)).mistake()
    assert "pip install 'fedblade[tensorboard]'" in message
    assert not (tmp_path / "mine").exists()


@pytest.mark.thorough
def test_a_card_needs_no_data(fresh_cli, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("from fedblade.data import digits\ndigits._FILE = None\n")
    assert fresh_cli("show", "fedavg", PYTHONPATH=str(tmp_path)).done().out.startswith("fedavg")


@pytest.mark.parametrize(
    "argv",
    [
        ["--debug", "run", "--set", "alpha=-1"],
        ["run", "--debug", "--set", "alpha=-1"],
        ["run", "--set", "alpha=-1", "--debug"],
    ],
    ids=["first", "middle", "last"],
)
def test_debug_shows_a_traceback_wherever_it_stands(cli, argv):
    answer = cli(*argv)
    assert answer.status != 0
    assert "Traceback (most recent call last)" in answer.err
    assert "alpha=-1" in answer.err


def test_debug_keeps_the_exit_status_of_the_mistake(cli):
    assert cli("run", "--debug", "--set", "alpha=-1").status == 2


@pytest.mark.parametrize("argv", [["list", "method"], ["run", "--set", "methd=fedavg"]])
def test_a_misspelt_word_gets_a_short_answer(cli, argv):
    assert len(cli(*argv).mistake()) < 220
