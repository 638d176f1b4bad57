"""A person runs a cell of a notebook and sees the rounds under it, without ipywidgets and without a flood of lines."""

import json
import subprocess
import sys
import textwrap

import pytest

import fedblade
from fedblade.runs._notebook import in_notebook

RUN = """
    import fedblade
    result = fedblade.run(
        model="mlp", dim=6, hidden=[8], num_clients=4, clients_per_round=2, rounds=3, device="cpu", metrics="accuracy",
        method="fedavg", {options}
    )
"""
STAND_IN = """
    import json, sys, types

    # A stand-in for a kernel: it has what a run uses of IPython, and prints what would be displayed.
    class Shell:
        kernel = object()

    class Handle:
        def update(self, content, *, raw):
            print(json.dumps({"update": content["text/plain"]}))

    def display(content, *, raw, display_id):
        print(json.dumps({"display": content["text/plain"], "html": content["text/html"]}))
        return Handle()

    sys.modules["IPython"] = types.SimpleNamespace(get_ipython=Shell)
    sys.modules["IPython.display"] = types.SimpleNamespace(display=display)
"""


def python(*parts):
    """The output and the error output of a fresh process that runs these lines."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(map(textwrap.dedent, parts))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_one_output_is_updated_in_place():
    lines = [json.loads(line) for line in python(STAND_IN, RUN.format(options=""))[0].splitlines()]
    assert [name for line in lines for name in line].count("display") == 1, "one output, updated in place"
    assert lines[0]["html"].startswith("<pre>fedavg on digits")
    assert "round 3/3" in lines[-1]["update"]
    assert "s/round" in lines[-1]["update"]


def test_progress_false_shows_nothing_and_true_shows_lines_elsewhere():
    assert python(STAND_IN, RUN.format(options="progress=False"))[0] == ""
    out, err = python(RUN.format(options="progress=True"))
    assert out == ""
    assert "round 3/3" in err


def test_a_script_without_a_terminal_is_silent_and_does_not_import_ipython():
    out, err = python(RUN.format(options=""), "import sys; assert 'IPython' not in sys.modules")
    assert (out, err) == ("", "")


def test_another_word_is_refused():
    with pytest.raises(fedblade.api.Misconfigured, match="expected True, False or 'auto'"):
        fedblade.run(progress="bar")


def test_ipython_in_a_terminal_is_no_notebook():
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    interactive.InteractiveShell.instance()
    assert not in_notebook()
