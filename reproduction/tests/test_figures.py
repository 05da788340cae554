"""Figures: valid SVG with text as text, the data in it, and the same file from the same data."""

import re
from pathlib import Path
from xml.etree import ElementTree

from reproduction import figures

SVG = "{http://www.w3.org/2000/svg}"


def texts(path: Path) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.parse(path).iter(f"{SVG}text")]


def test_lines_hold_every_point(tmp_path: Path) -> None:
    path = tmp_path / "lines.svg"
    figures.lines(path, {"Ubuntu": {"mal": [4.0, 2.0, 1.0]}}, "sweeps", "loss")
    assert {"Ubuntu", "mal", "sweeps", "loss"} <= set(texts(path))
    (curve,) = (
        node.get("d")
        for node in ElementTree.parse(path).iter(f"{SVG}path")
        if node.get("clip-path") and "#0072b2" in (node.get("style") or "")
    )
    points = [(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.]+) ([\d.]+)", curve or "")]
    assert len(points) == 3
    # Down in the figure is a larger y: the falls from 4 to 2 and from 2 to 1 are as 2 to 1.
    assert abs((points[1][1] - points[0][1]) / (points[2][1] - points[1][1]) - 2) < 1e-3


def test_the_same_data_gives_the_same_file_and_no_date(tmp_path: Path) -> None:
    rates = [{"rate": 0.5, "ci95": [0.4, 0.6], "n": 100}]
    for name in ("one.svg", "two.svg"):
        figures.bars_by_group(tmp_path / name, ["25"], {"r = 1": rates}, "G")
    one = (tmp_path / "one.svg").read_bytes()
    assert one == (tmp_path / "two.svg").read_bytes()
    assert b"<dc:date>" not in one
    assert {"25", "r = 1", "G"} <= set(texts(tmp_path / "one.svg"))


def test_words_and_threshold_are_shown_whatever_signs_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "words.svg"
    figures.word_bars(path, {"Ubuntu": ([("<unk>", 1.0), ("$a$", 2.0), ("&", 5.0)], 3.9)})
    assert {"<unk>", "$a$", "&", "-T_out = 3.90"} <= set(texts(path))


def test_histograms_have_a_panel_a_title(tmp_path: Path) -> None:
    path = tmp_path / "histograms.svg"
    counts = {"largest": [0, 4], "second largest": [3, 1]}
    figures.histograms(path, {"free": counts, "bound": counts}, [0.0, 0.5, 1.0])
    assert {"free", "bound", "largest", "second largest"} <= set(texts(path))


def test_names_of_near_points_do_not_cover_each_other(tmp_path: Path) -> None:
    points = {
        "first": (1.0, 1.0),
        "second": (1.02, 1.0),
        "third": (1.0, 1.03),
        "far": (5.0, 3.0),
        "near": (-3.0, 0.0),
    }
    with figures.drawing(tmp_path / "points.svg") as (axis,):
        axis.plot(*zip(*points.values(), strict=True), linestyle="", marker="o")
        figures.name_points(axis, points)
        boxes = [label.get_window_extent() for label in axis.texts]
        assert [label.get_text() for label in axis.texts] == list(points)
        assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[:place])
    assert set(points) <= set(texts(tmp_path / "points.svg"))
