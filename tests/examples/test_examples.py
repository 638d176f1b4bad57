"""Every example runs, and does what its text says."""

import ast
import importlib.util
import io
import math
import subprocess
import sys
import tokenize
from pathlib import Path
from types import SimpleNamespace

import pytest

import fedblade
from fedblade.core.registry import ENTRY_POINT_GROUP
from fedblade.results import read_runs
from fedblade.runs import Driver, RunListener, load_config, prepare

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"rounds": 2, "num_clients": 4, "clients_per_round": 2, "epochs": 1}


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_own_parts_work_by_reference():
    file = EXAMPLES / "own_parts.py"
    result = fedblade.run(
        method=f"{file}:smooth",
        model=f"{file}:two_layers",
        partition=f"{file}:EvenOdd",
        width=16,
        smoothing=0.3,
        **SMALL,
    )
    assert result.summary["status"] == "finished"
    assert result.model.features(_images()).shape == (3, 32)
    with pytest.raises(fedblade.core.errors.Misconfigured, match="smoothing"):
        fedblade.run(method=f"{file}:smooth", smothing=0.3, **SMALL)


def test_an_own_metric_is_measured_and_described(tmp_path):
    result = fedblade.run(metrics=[f"{EXAMPLES / 'own_parts.py'}:confidence"], out=tmp_path / "run", **SMALL)
    assert all(0.1 <= row["confidence"] <= 1 for row in result.history)
    (record,) = read_runs([tmp_path / "run"])
    assert record.fields["confidence"].label == "How sure the model is"


def test_own_parts_combine_with_built_in_regularisers():
    result = fedblade.run(method=f"{EXAMPLES / 'own_parts.py'}:smooth+feddecorr", **SMALL)
    assert "loss_decorr" in result.history[0]


def test_the_even_odd_partition_splits_by_parity():
    module = load("own_parts")
    split = module.EvenOdd().split([0, 1, 2, 3] * 30, 4, seed=0)
    table = split.table()
    assert (table[0::2][:, [1, 3]] == 0).all()
    assert (table[1::2][:, [0, 2]] == 0).all()
    assert table.sum() == 120


@pytest.mark.thorough
def test_own_parts_script_runs_from_the_command_line(capsys):
    load("own_parts").main()
    printed = capsys.readouterr().out
    assert "even and odd clients" in printed
    assert "two moons" in printed


@pytest.mark.thorough
def test_own_loop_shows_that_decorrelation_opens_the_spectrum():
    module = load("own_loop")
    plain_accuracy, plain_rank = module.train(0.0)
    accuracy, rank = module.train(0.0005)
    assert min(plain_accuracy, accuracy) > 80
    assert rank > plain_rank + 1


NEW_METHOD = f"{EXAMPLES / 'new_method.py'}:relative"


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank nor comment nor docstring."""
    text = path.read_text(encoding="utf-8")
    blank = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in blank]
    code = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node) is not None:
            code -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(code)


def test_lines_of_code_are_counted_without_comments_and_docstrings(tmp_path):
    path = tmp_path / "code.py"
    path.write_text('"""Doc\n\nstring."""\n\n# why\nx = """\na\n"""\n\ndef f():\n    "doc"\n    return x  # so\n')
    assert lines_of_code(path) == 5


def test_a_new_method_takes_less_than_forty_lines():
    module = (EXAMPLES / "new_method.py").read_text(encoding="utf-8")
    assert "under 40 lines of code" in module
    assert lines_of_code(EXAMPLES / "new_method.py") < 40


def test_the_new_method_without_its_odds_is_fedavg():
    weights = [fedblade.run(method=name, **SMALL, **knobs).model.state_dict() for name, knobs in
               (("fedavg", {}), (NEW_METHOD, {"strength": 0.0}), (NEW_METHOD, {}))]  # fmt: skip
    plain, off, on = weights
    assert all((plain[name] == off[name]).all() for name in plain)
    assert not all((plain[name] == on[name]).all() for name in plain)


def test_the_new_methods_loss_is_its_formula():
    import torch

    module = load("new_method")
    logits, labels = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 2, 2, 1])
    counts, heard = torch.tensor([5, 0, 9]), torch.tensor([20.0, 30.0, 9.0], dtype=torch.float64)
    view = SimpleNamespace(logits=logits, labels=labels, counts=counts, mask=None, server={"heard": {"of": heard}})
    value = module.RelativeCrossEntropy(strength=0.5)(view).value
    odds = [math.log(6 / 21), math.log(1 / 31), math.log(10 / 10)]
    slow = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        shifted = [logit + 0.5 * odd for logit, odd in zip(row, odds, strict=True)]
        slow += (math.log(sum(map(math.exp, shifted))) - shifted[label]) / 4
    assert float(value) == pytest.approx(slow, rel=1e-12)


def test_the_server_of_the_new_method_hears_of_every_participation():
    everyone = {**SMALL, "clients_per_round": 4, "rounds": 3}
    seen = []

    setup = prepare(load_config(None, {"method": NEW_METHOD, **everyone})[0])
    server = setup.method.server
    object.__setattr__(setup.method, "server", lambda *given: seen.append(server(*given)) or seen[-1])
    Driver(setup, None, RunListener()).run()
    totals = [state.extra["heard"]["of"] for state in seen]
    assert float(totals[0].sum()) == 1348
    assert (totals[2] == 3 * totals[0]).all()


@pytest.mark.thorough
def test_the_new_method_script_compares_with_fedavg(capsys):
    load("new_method").main(rounds=2, seeds=(1, 2))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("fedavg ")
    assert second.startswith("relative ")
    assert first.split()[1:3] != second.split()[1:3]


@pytest.mark.thorough
def test_the_new_method_runs_by_reference_from_the_command_line(tmp_path):
    command = [sys.executable, "-m", "fedblade", "run", "--set", "method=examples/new_method.py:relative"]
    sizes = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    out = tmp_path / "run"
    subprocess.run([*command, *sizes, "--out", str(out), "--quiet"], cwd=EXAMPLES.parent, check=True)
    assert (out / "model.safetensors").is_file()


@pytest.mark.thorough
def test_an_installed_package_announces_its_parts(tmp_path):
    """The same metadata that pip writes for `examples/plugin_package`, on the path of a fresh process."""
    info = tmp_path / "fedblade_hello-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fedblade-hello\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nhello = fedblade_hello\n")
    (tmp_path / "fedblade_hello.py").write_text((EXAMPLES / "plugin_package" / "fedblade_hello.py").read_text())
    listed = subprocess.run(
        [sys.executable, "-m", "fedblade", "list", "methods"],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "hello" in listed.stdout
    assert "stays near the global model" in listed.stdout


def _images():
    import torch

    return torch.zeros(3, 1, 8, 8)
