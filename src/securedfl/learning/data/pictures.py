"""Pictures of samples: a contact sheet as SVG, and small images as characters for a terminal."""

from __future__ import annotations

from html import escape

import numpy as np
from rich.color import Color
from rich.style import Style
from rich.text import Text

from securedfl.errors import ConfigError
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.description import excerpt
from securedfl.parameters import Array
from securedfl.svg import image_of

USERS, SAMPLES = 6, 10
"""Rows and columns of a contact sheet."""

TERMINAL_WIDTH = 76
SHADES = " ░▒▓█"
PLAIN_SHADES = " .:*#"
LINES = 5
"""Lines of text shown of a data set of sequences, or of a table."""

NUMBERS = 10
"""Features shown of a row."""

_CELL, _MARGIN, _NAMES, _TOP = 56, 16, 116, 66


def contact_sheet(dataset: Dataset) -> str:
    """Return an SVG with samples of a few users, one user per row, from few samples to many."""
    if dataset.alphabet is None and len(dataset.shape) != 3:
        raise ConfigError(
            f"the samples of {dataset.name!r} are rows of numbers, which have no picture; leave --svg away"
        )
    rows = excerpt(dataset, USERS, SAMPLES)
    text = dataset.alphabet is not None
    left = _MARGIN + (_NAMES if dataset.users is not None else 0)
    step = 40 if text else _CELL + 14
    width, height = left + (460 if text else SAMPLES * _CELL) + 16, _TOP + step * len(rows) + 8
    users = f" of {dataset.user_count:,} users" if dataset.users is not None else ""
    title = escape(f"{dataset.name}: {len(dataset):,} samples{users}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{title}" style="background:#fff">',
        f'<text x="16" y="26" font-size="15" font-weight="600" fill="#1d2730">{title}</text>',
        f'<text x="16" y="46" fill="#5a6670">{_caption(dataset)}</text>',
    ]
    for number, (user, chosen) in enumerate(rows):
        y = _TOP + number * step
        if user is not None:
            count = np.count_nonzero(dataset.users == user)
            parts.append(
                f'<text x="16" y="{y + 14}" fill="#1d2730">user {user}</text>'
                f'<text x="16" y="{y + 30}" fill="#5a6670" font-size="11">{count:,} samples</text>'
            )
        if text:
            line = escape(sentence(dataset, int(chosen[0])))
            font = 'font-family="ui-monospace, monospace" font-size="13" xml:space="preserve" fill="#1d2730"'
            parts.append(f'<text x="{left}" y="{y + 16}" {font}>{line}</text>')
        else:
            parts += [_cell(dataset, k, left + column * _CELL, y) for column, k in enumerate(chosen.tolist())]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _cell(dataset: Dataset, sample: int, x: int, y: int) -> str:
    """Return a sample as an image with its class below."""
    side, label = _CELL - 4, dataset.y[sample]
    return (
        image_of(pixels(dataset, sample), x, y, side, title=f"sample {sample}, class {label}")
        + f'<text x="{x + side / 2:g}" y="{y + side + 10}" text-anchor="middle" font-size="9" fill="#5a6670">'
        f"{label}</text>"
    )


def _caption(dataset: Dataset) -> str:
    if dataset.alphabet is not None:
        return "One sample each of users with few samples to many; · is a space, ↵ a new line."
    if dataset.users is not None:
        return "One user per row, from few samples to many; the class is below each image."
    return "The class is below each image."


def sentence(dataset: Dataset, sample: int) -> str:
    """Return a sequence as text with its white space made visible."""
    text = "".join((dataset.alphabet or "")[code] for code in dataset.x[sample])
    return text.translate({ord(" "): "·", ord("\n"): "↵", ord("\t"): "⇥", ord("\r"): "␍"})


def pixels(dataset: Dataset, sample: int) -> Array:
    """Return an image as uint8, height x width (x 3): the data set's darkest is 0 and its brightest 255."""
    image = dataset.x[sample].astype(np.float64)
    low, high = (-1.0, 1.0) if dataset.x[:100].min() < 0 else (0.0, 1.0)
    scaled: Array = np.clip((image - low) / (high - low) * 255, 0, 255).round().astype(np.uint8)
    result: Array = scaled[0] if len(scaled) == 1 else scaled[:3].transpose(1, 2, 0)
    return result


def terminal(dataset: Dataset, *, colour: bool, unicode: bool = True) -> list[Text]:
    """Return lines for a terminal: a row of small images, or a few lines of text or numbers.

    Parameters
    ----------
    dataset
        Whose samples to show.
    colour
        Whether the terminal has colours; without, images are drawn in five shades.
    unicode
        Whether it has characters beyond ASCII.
    """
    if dataset.alphabet is not None:
        chosen = [indices[0] for _, indices in excerpt(dataset, LINES, 1)]
        sentences = [sentence(dataset, int(sample)) for sample in chosen]
        return [Text(line if unicode else line.replace("·", " ")) for line in sentences]
    if len(dataset.shape) != 3:
        chosen = [int(indices[0]) for _, indices in excerpt(dataset, LINES, 1)]
        names = dataset.names or tuple(map(str, range(dataset.classes)))
        return [
            Text(f"{names[int(dataset.y[k])]}: {' '.join(f'{v:.2f}' for v in dataset.x[k][:NUMBERS])}") for k in chosen
        ]
    height, width = dataset.shape[-2:]
    shrink = max(1, round(max(height, width) / 16))
    columns = max(1, (TERMINAL_WIDTH + 2) // (width // shrink + 2))
    chosen = [sample for _, indices in excerpt(dataset, columns, 1) for sample in indices.tolist()][:columns]
    small = [_shrunk(pixels(dataset, sample), shrink) for sample in chosen]
    lines: list[Text] = []
    for row in range(0, small[0].shape[0] - 1, 2):
        line = Text()
        for number, image in enumerate(small):
            if number:
                line.append("  ")
            _append(line, image[row], image[row + 1], colour=colour, unicode=unicode)
        lines.append(line)
    return lines


def _append(line: Text, upper: Array, lower: Array, *, colour: bool, unicode: bool) -> None:
    """Add one line of characters, each as wide as one pixel and as high as two."""
    if colour and unicode:
        for above, below in zip(upper, lower, strict=True):
            style = Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below))
            line.append("▀", style)
        return
    shades = SHADES if unicode else PLAIN_SHADES
    level = (upper.mean(axis=1) + lower.mean(axis=1)) / 2 / 255
    line.append("".join(shades[min(int(value * len(shades)), len(shades) - 1)] for value in level))


def _shrunk(image: Array, by: int) -> Array:
    """Return the image with 3 channels, ``by`` times smaller, each pixel the mean of a square."""
    if image.ndim == 2:
        image = np.repeat(image[..., None], 3, axis=2)
    height, width = (length // by for length in image.shape[:2])
    squares = image[: height * by, : width * by].reshape(height, by, width, by, 3)
    result: Array = squares.mean(axis=(1, 3)).round().astype(np.uint8)
    return result
