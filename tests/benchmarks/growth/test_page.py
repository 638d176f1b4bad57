"""The rows about the page of many groups, on a few groups."""

import shutil

import pytest

from benchmarks.benchmark import Options, Skipped
from benchmarks.workloads.growth import page


def test_the_bytes_of_two_pages_are_compared():
    result = page.measure_size(Options(), few=2, many=4, rounds=1)
    assert result.value == pytest.approx(result.medians["4 groups MB"] / result.medians["2 groups MB"])
    assert result.medians["4 groups MB"] > 0.1


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed: no page was opened")
def test_a_page_is_opened_as_often_as_asked():
    result = page.measure_opening(Options(repeat=2), many=2, rounds=1)
    assert len(result.values) == 2
    assert 0 < result.value < 60


def test_without_chromium_the_row_is_skipped_with_the_reason(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(Skipped, match="Chromium"):
        page.measure_opening(Options())
