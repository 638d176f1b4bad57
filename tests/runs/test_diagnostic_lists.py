"""Lists that metrics give: rounded, written once, and read again from the run folder or from memory."""

import json
import shutil

import numpy as np
import pytest

import fedblade
from fedblade.core.errors import CorruptFile
from fedblade.runs._rounding import rounded


def test_numbers_are_rounded_as_their_decimal_text_is():
    generator = np.random.default_rng(0)
    ties = generator.integers(0, 2**20, 4000) / 2.0 ** generator.integers(0, 30, 4000)
    shares = 100 * generator.integers(0, 99, 2000) / generator.integers(1, 99, 2000)
    sizes = 10 ** generator.uniform(-300, 300, 4000)
    near = np.round(generator.normal(size=4000), 6) + 5e-7
    edges = [0.0, -0.0, 999999.5, 0.9999995, 5e-324, 1.7e308, float(10**22), 1e-22]
    values = [float(sign * value) for part in (ties, shares, sizes, near, edges) for value in part for sign in (1, -1)]
    assert [repr(value) for value in rounded(values)] == [repr(float(f"{value:.6g}")) for value in values]


def test_what_is_not_a_list_of_floats_is_rounded_entry_by_entry():
    given = {"a": [[1.23456789, None, float("nan")], (float("inf"), 2, "x")], "b": 0.123456789, "c": [], "d": [3, 4]}
    expected = {"a": [[1.23457, None, None], [None, 2, "x"]], "b": 0.123457, "c": [], "d": [3, 4]}
    assert rounded(given) == expected
    assert rounded([[1.23456789, float("nan")], [], [None]]) == [[1.23457, None], [], [None]]
    assert rounded([[], []]) == [[], []]
    assert [type(entry) for entry in rounded([3, 4.0])] == [int, float]


def small_run(**settings):
    return fedblade.run(
        method="fedavg", model="mlp", device="cpu", num_clients=4, clients_per_round=2, rounds=3,
        **{"local.epochs": 1}, **settings,
    )  # fmt: skip


def test_diagnostics_are_the_same_in_memory_and_in_a_run_folder(tmp_path):
    stored, kept = small_run(out=tmp_path / "run"), small_run()
    lines = [json.loads(line) for line in (tmp_path / "run" / "diagnostics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert stored.diagnostics == kept.diagnostics == lines
    assert isinstance(stored.diagnostics, list)
    assert small_run(out=tmp_path / "run", resume=True).diagnostics == lines


def test_diagnostics_of_a_folder_that_is_gone_are_refused_with_a_reason(tmp_path):
    result = small_run(out=tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(
        CorruptFile, match=r"diagnostics\.jsonl' with the diagnostics of the run is gone.*before the folder is removed"
    ):
        _ = result.diagnostics
