"""Pictures of designs."""

import base64
import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from securedfl.designs import Design, best
from securedfl.designs.drawing import design_caption, design_svg, in_circles


@pytest.mark.parametrize(("n", "s"), [(3, 3), (7, 2), (9, 3), (31, 4), (60, 3), (61, 3), (150, 5)])
def test_drawings_are_well_formed(n: int, s: int) -> None:
    design = best(n, s)
    root = ElementTree.fromstring(design_svg(design))  # noqa: S314
    assert root.tag.endswith("svg")
    assert root.get("viewBox")
    assert "http" not in design_svg(design).replace("http://www.w3.org/2000/svg", "")


def test_few_partitions_are_circles_that_count_from_0() -> None:
    picture = design_svg(best(9, 3))
    assert [f"partition {i}<" in picture for i in range(5)] == [True] * 4 + [False]
    assert "circle of peers per partition" in design_caption(best(9, 3))


def test_every_pair_of_many_peers_has_the_colour_of_its_partition() -> None:
    image = pytest.importorskip("PIL.Image")
    design = best(99, 3)
    assert not in_circles(design)
    picture = design_svg(design)
    assert f"in which of the {design.gap} partitions" in design_caption(design)
    content = picture.partition("base64,")[2].partition('"')[0]
    pixels = np.array(image.open(io.BytesIO(base64.b64decode(content))))
    assert pixels.shape == (99, 99)
    assert (pixels == pixels.T).all()
    for partition in (0, 17, design.gap - 1):
        for group in design.partition(partition):
            assert {int(pixels[a, b]) for a in group for b in group if a != b} == {partition}
    # a Kirkman triple system: everybody meets everybody else once
    assert (np.bincount(pixels[5], minlength=design.gap)[: design.gap] == 2).all()


def test_pairs_that_never_meet_are_white() -> None:
    image = pytest.importorskip("PIL.Image")
    design = best(99, 3).first(13)
    content = design_svg(design).partition("base64,")[2].partition('"')[0]
    pixels = np.array(image.open(io.BytesIO(base64.b64decode(content))).convert("RGB"))
    assert (pixels == 255).all(axis=2).sum() == 99 * (98 - 2 * 13)


def test_too_many_peers_are_not_drawn() -> None:
    design = Design.everyone(1001)
    assert design_svg(Design.everyone(400))
    assert not design_svg(design)
    assert "design.json has every group" in design_caption(design)
