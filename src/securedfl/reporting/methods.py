"""How methods are named, ordered and drawn, the same in every table and figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from securedfl.federation.methods import ordered

Dashes = str | tuple[float, tuple[float, ...]]
"""How a line is broken, as matplotlib takes it."""


@dataclass(frozen=True)
class Look:
    """How one method is drawn; curves that coincide stay apart by width, dashes and marker, not by colour alone.

    Attributes
    ----------
    colour, dark
        Its colour on white, and the same hue on a dark background.
    width, dashes, marker
        Its line, as matplotlib takes them.
    """

    colour: str
    dark: str
    width: float
    dashes: Dashes
    marker: str


# FedAvg is a broad band, SecureD-FL a narrower dashed one and every other method a thin line, so that each is
# still seen where all of them coincide, as they should.
_LOOKS = {
    "local": Look("#6b7280", "#a3adbb", 1.6, "-", "^"),
    "fedavg": Look("#c98300", "#f2b84b", 7.0, "-", ""),
    "paper": Look("#b5487f", "#e78bb8", 4.6, (0.0, (5.0, 1.4)), "D"),
    "secured": Look("#0b57a4", "#6cb0f5", 3.0, (0.0, (2.6, 1.2)), "o"),
    "shares": Look("#00835f", "#43c59a", 1.4, (0.0, (1.2, 1.8)), "s"),
}
_SPARE_LOOKS = (
    Look("#7a5230", "#d2a679", 1.4, (0.0, (6.0, 1.5, 1.2, 1.5)), "d"),
    Look("#c2410c", "#f58a5b", 1.4, (0.0, (2.5, 1.2)), "v"),
    Look("#2f8fc4", "#7cc8f0", 1.4, (0.0, (8.0, 2.0)), "P"),
    Look("#6a4fb3", "#a995ea", 1.4, (0.0, (5.0, 1.5, 1.2, 1.5, 1.2, 1.5)), "X"),
)


def looks(methods: Iterable[str]) -> Mapping[str, Look]:
    """Return how each method is drawn; unknown ones take the spare looks in turn."""
    names = ordered(methods)
    spare = [m for m in names if m not in _LOOKS]
    extra = {m: _SPARE_LOOKS[i % len(_SPARE_LOOKS)] for i, m in enumerate(spare)}
    return {m: _LOOKS.get(m) or extra[m] for m in names}


def palette() -> dict[str, str]:
    """Return every colour that a method can have, each with its hue on a dark background."""
    return {look.colour: look.dark for look in (*_LOOKS.values(), *_SPARE_LOOKS)}


def themed(colour: str) -> str:
    """Return a method's colour in such a way that the page's dark theme can restate it."""
    return f"var(--c{colour.removeprefix('#')}, {colour})"
