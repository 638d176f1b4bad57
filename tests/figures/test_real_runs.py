"""Figures of the five papers from real runs on digits: what is drawn is what the runs wrote."""

import json
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fedblade.figures
from fedblade.figures import write_figures
from fedblade.figures._style import TWO_COLUMNS

pytestmark = pytest.mark.thorough

Curve = tuple[list[float], list[float]]


@dataclass(frozen=True)
class Run:
    """A run as its files tell it."""

    config: dict[str, Any]
    history: list[dict[str, Any]]
    arrays: dict[str, Any]

    def course(self, key: str) -> Curve:
        """Rounds at which the field is defined, and its values."""
        rows = [row for row in self.history if row.get(key) is not None]
        return [float(row["round"]) for row in rows], [row[key] for row in rows]

    def spectrum(self, key: str) -> Curve:
        """Logarithms of the first eigenvalues at the last round."""
        values = self.arrays[key][:100]
        return [float(k) for k in range(1, len(values) + 1)], [math.log(max(value, 1e-12)) for value in values]


def read(folder: Path) -> list[Run]:
    return [
        Run(
            tomllib.loads((path / "config.toml").read_text()),
            [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()],
            json.loads((path / "diagnostics.jsonl").read_text().splitlines()[-1])
            if (path / "diagnostics.jsonl").exists()
            else {},
        )
        for path in sorted(folder.iterdir())
    ]


@pytest.fixture
def drawn(papers, tmp_path, monkeypatch) -> Callable[[str, str], Any]:
    """Draw a paper's figure from the runs of a preset, and return it as it was before it was saved."""

    def draw(figure: str, preset: str) -> Any:
        made = []

        def recorded(panels: Any, width: float) -> Any:
            made.append(plain(panels, width))
            return made[-1]

        plain = fedblade.figures.draw
        monkeypatch.setattr(fedblade.figures, "draw", recorded)
        written = write_figures([papers / preset], tmp_path, formats=["png"], paper=figure)
        assert [path.name for path in written] == [f"{figure}-1col.png", f"{figure}-2col.png"]
        narrow, wide = made
        assert wide.get_figwidth() == TWO_COLUMNS
        assert [lines_of(ax) for ax in shown(narrow)] == [lines_of(ax) for ax in shown(wide)]
        return wide

    return draw


def shown(figure: Any) -> list[Any]:
    return [ax for ax in figure.axes if ax.get_visible()]


def lines_of(ax: Any) -> list[Curve]:
    return [([*map(float, line.get_xdata())], [*map(float, line.get_ydata())]) for line in ax.lines]


def titles(figure: Any) -> list[str]:
    return [ax.get_title().replace("\n", " ").replace("\u00a0", " ") for ax in shown(figure)]


def legend(figure: Any) -> dict[str, Any]:
    [found] = figure.legends
    return dict(zip((text.get_text() for text in found.get_texts()), found.legend_handles, strict=True))


def check(ax: Any, expected: list[Curve]) -> None:
    """The lines of a panel in their order; values are stored with as many digits as they have."""
    found = lines_of(ax)
    assert [x for x, _ in found] == [x for x, _ in expected]
    for (_, up), (_, wanted) in zip(found, expected, strict=True):
        assert up == pytest.approx(wanted, rel=1e-12)
        assert len(up) > 1


def check_colours(figure: Any, names: list[str], per_name: int = 1) -> None:
    """The lines of the first panel have the colours that the legend gives their names."""
    handles = legend(figure)
    colours = [line.get_color() for line in shown(figure)[0].lines]
    assert colours == [handles[name].get_color() for name in names for _ in range(per_name)]


def by(runs: list[Run], *methods: str) -> list[Run]:
    """The runs of these methods, in this order."""
    return [next(run for run in runs if run.config["method"]["name"] == method) for method in methods]


def with_alpha(runs: list[Run], alpha: float) -> list[Run]:
    return [run for run in runs if run.config["partition"].get("alpha") == alpha]


def blades(runs: list[Run]) -> list[Run]:
    """FedAvg, FedETF, and FedBlade with its own decorrelation and with FedDecorr's, as a figure lists them."""
    kinds = {run.config["method"]["decorr"]["kind"]: run for run in runs if run.config["method"]["name"] == "fedblade"}
    return [*by(runs, "fedavg", "fedetf"), kinds["feddecorr"], kinds["logdet"]]


BLADES = ["FedAvg", "FedETF", "FedBlade-FedDecorr", "FedBlade"]


def test_fd_f2_has_the_spectrum_of_every_split(papers, drawn):
    runs = read(papers / "fd-f4")
    figure = drawn("fd-f2", "fd-f4")
    [ax] = shown(figure)
    names = ["α = 0.01", "α = 0.05", "α = 0.25", "IID"]
    order = [run for alpha in (0.01, 0.05, 0.25, None) for run in with_alpha(runs, alpha)]
    assert list(legend(figure)) == names
    check(ax, [run.spectrum("spectrum") for run in order])
    check_colours(figure, names)


def test_fd_f4_sets_local_against_global_spectra_on_one_scale(papers, drawn):
    runs = read(papers / "fd-f4")
    figure = drawn("fd-f4", "fd-f4")
    order = [run for alpha in (0.01, 0.05, 0.25, None) for run in with_alpha(runs, alpha)]
    names = ["α = 0.01", "α = 0.05", "α = 0.25", "IID"]
    ratios = [run.history[-1]["spectrum_ratio"] for run in order]
    assert titles(figure) == [f"{name}, R = {ratio:.2f}" for name, ratio in zip(names, ratios, strict=True)]
    for ax, run in zip(shown(figure), order, strict=True):
        check(ax, [run.spectrum("spectrum"), run.spectrum("local_spectrum")])
    assert len({ax.get_ylim() for ax in shown(figure)}) == 1
    assert list(legend(figure)) == ["global", "local"]


def test_fb_f2_has_the_spectrum_of_every_method(papers, drawn):
    figure = drawn("fb-f2", "fb-f2")
    [ax] = shown(figure)
    check(ax, [run.spectrum("spectrum") for run in blades(read(papers / "fb-f2"))])
    check_colours(figure, BLADES)


def test_fb_f4_has_the_effective_rank_after_the_projection(papers, drawn):
    runs = read(papers / "fb-f4")
    figure = drawn("fb-f4", "fb-f4")
    assert titles(figure) == ["α = 0.05, client-wise", "α = 0.5, client-wise"]
    for ax, alpha in zip(shown(figure), (0.05, 0.5), strict=True):
        check(ax, [run.course("erank_proj_correlation") for run in blades(with_alpha(runs, alpha))])
    check_colours(figure, BLADES)
    assert len({ax.get_ylim() for ax in shown(figure)}) == 1


def test_fe_f5_has_consistency_and_neural_collapse_error(papers, drawn):
    runs = by(read(papers / "fe-f5"), "fedavg", "fedetf")
    figure = drawn("fe-f5", "fe-f5")
    first, second = shown(figure)
    check(first, [run.course("prototype_consistency") for run in runs])
    check(second, [run.course("nc_error") for run in runs])
    check_colours(figure, ["FedAvg", "FedETF"])
    assert [ax.get_ylabel().replace("\n", " ") for ax in (first, second)] == [
        "prototype consistency",
        "neural-collapse error",
    ]


def test_fg_f5_has_the_angles_of_local_and_global_heads_on_one_scale(papers, drawn):
    runs = read(papers / "fg-f5")
    figure = drawn("fg-f5", "fg-f5")
    panels = [(alpha, place) for alpha in (0.1, 0.5) for place in ("local", "global")]
    for ax, (alpha, place) in zip(shown(figure), panels, strict=True):
        chosen = by(with_alpha(runs, alpha), "fedavg", "fedge", "fedgela")
        check(ax, [run.course(f"angle_{kind}_{place}") for run in chosen for kind in ("existing", "missing")])
    assert len({ax.get_ylim() for ax in shown(figure)}) == 1
    assert list(legend(figure)) == ["FedAvg", "FedGE", "FedGELA", "existing", "missing"]
    check_colours(figure, ["FedAvg", "FedGE", "FedGELA"], per_name=2)


def test_fr_f5_has_the_gap_of_alignment_on_one_scale(papers, drawn):
    runs = by(read(papers / "fr-f5"), "fedbabu", "dotreg", "feddr_plus")
    figure = drawn("fr-f5", "fr-f5")
    assert titles(figure) == ["observed", "unobserved"]
    for ax, kind in zip(shown(figure), ("observed", "unobserved"), strict=True):
        check(ax, [run.course(f"alignment_gap_{kind}") for run in runs])
    assert len({ax.get_ylim() for ax in shown(figure)}) == 1
    check_colours(figure, ["CE", "DotRegression", "FedDr+"])
