"""Look at a result in a notebook and in pandas, draw it, and write its report."""

import matplotlib as mpl
import pytest

import fedblade
from support.five_modules import Mlp, arrays

pytest.importorskip("pandas")


def test_results_in_pandas(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    result = fedblade.run(dataset=arrays("mlp"), model=Mlp(), method="fedavg", num_clients=10, rounds=4)

    assert repr(result).startswith("Result(method='fedavg', dataset='arrays', seed=1, rounds=4, final_accuracy=")
    html = result._repr_html_()
    assert "<table>" in html
    assert "<img" in html

    frame = result.to_pandas()
    assert list(frame["round"]) == [1, 2, 3, 4]
    assert frame["test_accuracy"].iloc[-1] == result.summary["final_accuracy"]

    axes = result.plot()
    axes.figure.savefig("curve.png")
    assert list(axes.lines[0].get_ydata()) == list(frame["test_accuracy"])

    page = result.report()
    assert page == tmp_path / "report-fedavg-seed1.html"
    assert "fedavg on arrays" in page.read_text()
