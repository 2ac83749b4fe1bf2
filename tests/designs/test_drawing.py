"""Pictures of designs."""

import xml.etree.ElementTree as ElementTree

import pytest

from securedfl.designs import best
from securedfl.designs.drawing import design_svg


@pytest.mark.parametrize(("n", "s"), [(3, 3), (7, 2), (9, 3), (31, 4), (60, 3), (61, 3), (150, 5)])
def test_drawings_are_well_formed(n: int, s: int) -> None:
    design = best(n, s)
    root = ElementTree.fromstring(design_svg(design, 3))  # noqa: S314
    assert root.tag.endswith("svg")
    assert root.get("viewBox")
    text = " ".join(element.text or "" for element in root.iter() if element.text)
    assert ("more partitions" in text) == (design.gap > 3)
    assert "http" not in design_svg(design).replace("http://www.w3.org/2000/svg", "")
