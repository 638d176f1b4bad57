"""The row about the start of a run."""

import importlib.util

import pytest

from benchmarks.benchmark import Options, Skipped
from benchmarks.fresh_process import measure_in_fresh_process
from benchmarks.workloads.growth import start


@pytest.mark.thorough
def test_the_former_side_imports_and_runs(tmp_path):
    pytest.importorskip("sklearn")
    result = measure_in_fresh_process("benchmarks.processes.start", "former", folder=tmp_path)
    assert result["imported"] == ["sklearn", "sympy"]
    assert (tmp_path / "run" / "summary.json").is_file()


@pytest.mark.thorough
def test_a_run_imports_neither_scikit_learn_nor_symbolic_shapes(tmp_path):
    assert measure_in_fresh_process("benchmarks.processes.start", "now", folder=tmp_path)["imported"] == []


def test_the_start_now_is_compared_with_the_former_one(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(start, "seconds", {"now": 2.0, "former": 4.0}.get)
    assert start.measure(Options(repeat=3)).values == [0.5, 0.5, 0.5]


def test_without_scikit_learn_the_row_is_skipped_with_the_reason(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Skipped, match="scikit-learn"):
        start.measure(Options())
