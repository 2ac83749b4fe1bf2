"""Numbers as people read them."""

from __future__ import annotations

import math

_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
NONE, UNBOUNDED = "–", "no bound"


def percent(value: float, digits: int = 2) -> str:
    """Return a fraction as a percentage: 0.9753 is "97.53 %"."""
    return f"{100 * value:.{digits}f} %" if math.isfinite(value) else NONE


def bounded(epsilon: float | None) -> str:
    """Return an epsilon; one that is not finite, which tables of metrics leave out, has no bound."""
    return UNBOUNDED if epsilon is None or not math.isfinite(epsilon) else f"{epsilon:.3g}"


def points(difference: float) -> str:
    """Return a difference of two fractions in percentage points, without its sign."""
    return f"{abs(100 * difference):.2f} points"


def scientific(value: float) -> str:
    """Return a number with two digits and a power of ten: 3.2e-15 is "3.2 × 10⁻¹⁵"."""
    if not math.isfinite(value):
        return NONE
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}" if value else "0"


def power_of_ten(value: float) -> str:
    """Return "10⁻³" for 0.001."""
    return f"10{str(round(math.log10(value))).translate(_SUPERSCRIPT)}"


def data_size(count: float) -> str:
    """Return a number of bytes in decimal units: 1,234,567 is "1.23 MB"."""
    if not math.isfinite(count):
        return NONE
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def duration(seconds: float) -> str:
    """Return a time with the unit that suits it: 0.0042 is "4.2 ms", 75 is "75.0 s", 600 is "10.0 min"."""
    if not math.isfinite(seconds):
        return NONE
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 300:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
