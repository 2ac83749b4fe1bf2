"""A demonstration that people understand: images stolen from an average, and the same attack on protected ones.

Peers start from a common model, take one step on one private image of a digit, and average. Whoever learns a peer's
parameters knows its gradient, and the first layer's gradient *is* the image (each row is the image times one number).
A second picture shows first-layer filters after real training on each peer's own digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.attacks.solving import record, recovered, solve
from securedfl.designs import best
from securedfl.errors import needing
from securedfl.protocols.protocol import CLASSIC, PAPER
from securedfl.protocols.randomness import InsecureSeededDraw
from securedfl.protocols.steps import Array

SIDE, HIDDEN, CLASSES = 8, 16, 10
PIXELS = SIDE * SIDE
STEP = 0.1


@dataclass(frozen=True, eq=False)
class Theft:
    """Images that were private, what the attacker got, and what it got from a protected average."""

    peers: tuple[int, ...]
    true: Array
    stolen: Array
    protected: Array
    recovered: int
    recovered_protected: int


def steal_images(*, peers: int = 9, seed: int = 0) -> Theft:
    """Steal the image that each peer trained on in one step (gradient inversion of the first layer)."""
    images, labels = _digits()
    chosen = np.random.default_rng(seed).choice(len(images), peers, replace=False)
    start = _model(seed)
    vectors = [_trained(start, images[[k]], labels[[k]], steps=1) for k in chosen]
    common = _flat(start)
    return _steal(vectors, images[chosen].reshape(peers, SIDE, SIDE), partial(_image, common), seed)


def steal_filters(*, peers: int = 9, epochs: int = 30, seed: int = 0) -> Theft:
    """Steal first-layer filters that each peer trained on one kind of digit against the rest."""
    images, labels = _digits()
    start = _model(seed)
    vectors = []
    for peer in range(peers):
        mine = np.flatnonzero((labels % peers == peer % CLASSES) | (np.arange(len(labels)) % (4 * peers) == peer))
        vectors.append(_trained(start, images[mine], labels[mine], steps=epochs))
    true = np.stack([_filter(vector) for vector in vectors])
    return _steal(vectors, true, _filter, seed)


def picture(path: str | Path, *, seed: int = 0) -> tuple[Theft, Theft]:
    """Write a picture (PNG or SVG, by the file's name) of both thefts; return them."""
    with needing("the picture"):
        import matplotlib as mpl
    mpl.use("Agg")
    from matplotlib import pyplot

    thefts = steal_images(seed=seed), steal_filters(seed=seed)
    titles = ("The private image that each peer trained on", "First-layer filters after training")
    figure = pyplot.figure(figsize=(9.6, 8.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, hspace=0.04)
    for part, theft, title, is_image in zip(parts, thefts, titles, (True, False), strict=True):
        part.suptitle(title, fontsize=11, fontweight="bold")
        _fill(part.subplots(3, len(theft.peers)), theft, is_image=is_image)
    figure.suptitle("What one curious peer computes from two iterations of ADMM", fontsize=12)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return thefts


def _fill(axes: Any, theft: Theft, *, is_image: bool) -> None:
    """Draw three rows: true, stolen, protected."""
    of = f"of {len(theft.peers)}"
    rows = (
        ("true", theft.true, "#1f2933"),
        (f"stolen from\nall-to-all:\n{theft.recovered} {of}", theft.stolen, "#c8423b"),
        (f"same attack\non grouped:\n{theft.recovered_protected} {of}", theft.protected, "#2f855a"),
    )
    for row, (name, pictures, colour) in zip(axes, rows, strict=True):
        for axis, picture, true, peer in zip(row, pictures, theft.true, theft.peers, strict=True):
            # one scale for the three rows, so that noise is not shown as if it were faint structure
            limit = float(np.abs(true).max())
            axis.imshow(picture, cmap="gray" if is_image else "RdBu", vmin=0 if is_image else -limit, vmax=limit)
            axis.set(xticks=[], yticks=[])
            for spine in axis.spines.values():
                spine.set_color(colour)
            if name == "true":
                axis.set_title(f"peer {peer}", fontsize=9)
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9, color=colour, labelpad=8)


def _steal(vectors: Sequence[Array], true: Array, look: Callable[[Array], Array], seed: int) -> Theft:
    """Let peer 0 attack an all-to-all average and a grouped one of the same vectors."""
    n = len(vectors)
    design = best(n, 3, seed)
    found, counts = [], []
    for protocol in (CLASSIC, PAPER):
        average = protocol.on(design)
        # seeded: a demonstration that looks the same every time
        taken = record(average, vectors, lambda peer: InsecureSeededDraw(seed, peer=peer))
        loot = solve(taken.overheard_by([0]), average, n)
        found.append(np.stack([look(loot.estimates[peer]) for peer in range(1, n)]))
        counts.append(len(recovered(loot, vectors)))
    return Theft(tuple(range(1, n)), true[1:], found[0], found[1], counts[0], counts[1])


def _image(common: Array, parameters: Array) -> Array:
    """Return the image of a single training step: a row of the first layer's gradient over its bias's gradient."""
    change = np.asarray(parameters, dtype=np.float64) - common
    weights, bias = change[: HIDDEN * PIXELS].reshape(HIDDEN, PIXELS), change[HIDDEN * PIXELS :][:HIDDEN]
    unit = int(np.abs(bias).argmax())
    image: Array = (weights[unit] / bias[unit]).reshape(SIDE, SIDE)
    return image


def _filter(parameters: Array) -> Array:
    """Return the first filter of the first layer."""
    return np.asarray(parameters)[:PIXELS].reshape(SIDE, SIDE)


def _digits() -> tuple[Array, Array]:
    with needing("the demonstration"):
        from sklearn.datasets import load_digits
    data = load_digits()
    return (data.data / 16).astype(np.float32), data.target.astype(np.int64)


def _model(seed: int) -> Any:
    with needing("the demonstration"):
        import torch
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(PIXELS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, CLASSES))


def _trained(start: Any, images: Array, labels: Array, *, steps: int) -> Array:
    """Return the parameters after full-batch steps from a common start."""
    import copy

    import torch

    model = copy.deepcopy(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=STEP, momentum=0.9 if steps > 1 else 0.0)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(steps):
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return _flat(model)


def _flat(model: Any) -> Array:
    parts = [parameter.detach().numpy().ravel() for parameter in model.parameters()]
    return np.concatenate(parts).astype(np.float64)
