"""Figures can be told apart, come out the same every time and read as numbers that people know."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from securedfl.federation.methods import label, ordered
from securedfl.reporting import figures
from securedfl.reporting.methods import looks, palette
from securedfl.reporting.svg import inline, save_figure
from securedfl.reporting.units import data_size, duration, percent, scientific

CURVES = {
    "fedavg": (list(range(12)), [0.1, *[0.95] * 11]),
    "secured": (list(range(12)), [0.1, *[0.95] * 11]),
    "local": (list(range(12)), [0.1, *[0.90] * 11]),
}


def test_methods_keep_the_papers_order_and_names() -> None:
    assert ordered(["mine", "secured", "local", "secured"]) == ["local", "secured", "mine"]
    assert [label(m) for m in ("local", "fedavg", "secured", "shares")] == [
        "Local-Only",
        "FedAvg",
        "SecureD-FL",
        "SecureD-FL shares",
    ]
    assert label("\x00") == "(no name)"


def test_methods_differ_in_colour_and_in_dashes_or_marker() -> None:
    drawn = list(looks(["local", "fedavg", "secured", "shares", "a", "b", "c", "d"]).values())
    assert len({look.colour for look in drawn}) == len(drawn)
    assert len({(look.dashes, look.marker) for look in drawn}) == len(drawn)
    assert looks(["fedavg"])["fedavg"].width > 2 * looks(["secured"])["secured"].width


@pytest.mark.parametrize("colour", palette())
def test_colours_stand_out_on_white(colour: str) -> None:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    assert 1.05 / (luminance + 0.05) >= 3


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_saved_figures_are_the_same_every_time(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        save_figure(figures.accuracy_curves(CURVES), tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_inline_svg_has_own_ids_and_the_pages_colours() -> None:
    svg = inline(figures.loss_curves(CURVES), "x", 'a "b" <c>')
    assert svg.startswith('<svg viewBox="0 0 ')
    assert svg.endswith("</svg>")
    assert 'aria-label="a &quot;b&quot; &lt;c&gt;"' in svg
    assert "currentColor" in svg
    assert figures.INK not in svg
    assert "<style" not in svg
    assert svg.count(' id="') == svg.count(' id="x-')
    assert ">SecureD-FL</text>" in svg


def test_an_error_of_zero_is_visible_on_the_logarithmic_scale() -> None:
    axes = figures.error_curves({"fedavg": ([0, 1], [0.0, 0.0]), "secured": ([0, 1], [3e-15, 4e-14])}).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0", "10⁻¹⁵", "10⁻¹⁴", "10⁻¹³"]
    assert all(axes.get_ylim()[0] < y < axes.get_ylim()[1] for line in axes.lines for y in line.get_ydata())


@pytest.mark.parametrize("values", [[0.0, 0.0], [1e-300, 1e3], [5e-324, 1.0], [2.0]])
def test_errors_of_any_size_can_be_drawn(values: list[float]) -> None:
    figure = figures.error_curves({"secured": (range(len(values)), values)})
    assert "</svg>" in inline(figure, "e", "errors")


def test_closeup_only_where_the_ends_are_squeezed() -> None:
    assert figures.has_closeup(CURVES)
    assert not figures.has_closeup({"local": (range(12), [r / 12 for r in range(12)])})
    assert not figures.has_closeup({})
    low, high = figures.accuracy_curves(CURVES, closeup=True).axes[0].get_ylim()
    assert 85 < low < 90 < 95 < high


@pytest.mark.parametrize("peers", [1, 2, 9, 400])
def test_every_peer_is_a_dot(peers: int) -> None:
    axes = figures.peer_strip({"secured": [0.9] * peers, "local": [0.5 + p / 1000 for p in range(peers)]}).axes[0]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in dots] == [peers, peers]
    assert all(len({(x, y) for x, y in line.get_xydata().tolist()}) == peers for line in dots)


def test_of_very_many_peers_some_are_dots_from_the_least_to_the_most() -> None:
    axes = figures.peer_strip({"secured": [p / 5000 for p in range(5001)]}).axes[0]
    (dots,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert (len(dots.get_xdata()), min(dots.get_xdata()), max(dots.get_xdata())) == (400, 0, 100)
    assert "400 of 5,001 peers" in axes.get_xlabel()


def test_import_does_not_need_matplotlib_or_torch() -> None:
    code = "import sys, securedfl.reporting.report; assert not {'matplotlib', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_matplotlib_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'securedfl\[learn\]'"):
        figures.accuracy_curves(CURVES)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (percent(0.97531), "97.53 %"),
        (percent(math.nan), "–"),
        (scientific(3.24e-15), "3.2 × 10⁻¹⁵"),
        (scientific(0.0), "0"),
        (scientific(math.inf), "–"),
        (data_size(0), "0 B"),
        (data_size(999_700), "1 MB"),
        (data_size(1_234_567), "1.23 MB"),
        (data_size(5e13), "50 TB"),
        (duration(0), "0 s"),
        (duration(0.0042), "4.2 ms"),
        (duration(3.987), "3.99 s"),
        (duration(75), "75.0 s"),
        (duration(600), "10.0 min"),
        (duration(7300), "2.0 h"),
        (duration(math.nan), "–"),
    ],
)
def test_numbers_as_people_read_them(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("closeup", [False, True])
def test_accuracies_that_are_all_perfect_have_room(closeup: bool) -> None:
    curves = {"secured": (list(range(8)), [1.0] * 8)}
    low, high = figures.accuracy_curves(curves, closeup=closeup).axes[0].get_ylim()
    assert low < 100 < high
