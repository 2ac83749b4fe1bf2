"""The paper's data sets: FEMNIST digits by writer, Shakespeare by role, and CIFAR-10 dealt to 1,000 clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from securedfl.errors import InvalidInputError
from securedfl.learning.data.dataset import Dataset, numbered
from securedfl.learning.data.hub import HubData, Rows, Tell
from securedfl.learning.seeds import stream
from securedfl.parameters import Array
from securedfl.storage import Arrays

FEWEST_SAMPLES = 10
"""Users with fewer are left out, as in the paper."""

SEQUENCE = 50
"""Characters per sample of Shakespeare."""

CLIENTS = 1000
"""Users that CIFAR-10 is dealt to, as in the paper."""

FEMNIST = HubData(name="femnist", address="flwrlabs/femnist")
SHAKESPEARE = HubData(name="shakespeare", address="flwrlabs/shakespeare")
CIFAR10 = HubData(name="cifar10", address="uoft-cs/cifar10", splits=("train", "test"))


def femnist(data_dir: Path | None, report: Tell) -> Dataset:
    """Load the digits of writers with at least 10 samples; 28x28 pixels from 0 to 1."""
    arrays = FEMNIST.arrays(data_dir, _decode_femnist, report)
    return Dataset(
        name="femnist",
        x=_scaled(arrays["x"][:, None], 255),
        y=arrays["y"].astype(np.int64),
        classes=10,
        users=arrays["users"],
    )


def shakespeare(data_dir: Path | None, report: Tell) -> Dataset:
    """Load sequences of 50 characters; the label of each position is the character after it."""
    arrays = SHAKESPEARE.arrays(data_dir, _decode_shakespeare, report)
    codes = arrays["codes"].astype(np.int64)
    return Dataset(
        name="shakespeare",
        x=np.ascontiguousarray(codes[:, :-1]),
        y=np.ascontiguousarray(codes[:, 1:]),
        classes=len(arrays["alphabet"]),
        users=arrays["users"],
        alphabet="".join(map(chr, arrays["alphabet"])),
    )


def cifar10(data_dir: Path | None, report: Tell) -> Dataset:
    """Load images dealt to 1,000 clients, training and test images evenly; pixels from -1 to 1."""
    arrays = CIFAR10.arrays(data_dir, _decode_cifar10, report)
    held_out = arrays["held_out"]
    users = np.empty(len(held_out), dtype=np.int64)
    for part in (held_out, ~held_out):
        clients = min(CLIENTS, int(held_out.sum()), int((~held_out).sum()))
        users[part] = stream(0, "clients").permutation(int(part.sum())) % clients
    x = _scaled(arrays["x"].transpose(0, 3, 1, 2), 127.5)
    x -= 1
    return Dataset(
        name="cifar10",
        x=x,
        y=arrays["y"].astype(np.int64),
        classes=10,
        users=users,
        held_out=held_out,
    )


def _decode_femnist(tables: Mapping[str, Rows]) -> Arrays:
    rows = tables["train"]
    labels = np.array(rows.column("character", "number"))
    users = numbered(rows.column("writer_id", "text"))[1]
    digits = (labels >= 0) & (labels <= 9)
    kept = digits & _frequent(users, digits)
    _some(kept, "femnist", f"digits of writers with at least {FEWEST_SAMPLES}")
    images = rows.images("image", "L", (28, 28), kept)
    return {"x": images, "y": labels[kept].astype(np.uint8), "users": numbered(users[kept])[1]}


def _decode_shakespeare(tables: Mapping[str, Rows]) -> Arrays:
    rows = tables["train"]
    roles = rows.column("character_id", "text")
    if rows.has("text"):
        texts = rows.column("text", "text")
    else:
        roles, texts = _joined(roles, rows.column("x", "text"), rows.column("y", "text"))
    alphabet = sorted(set().union(*texts))
    code = {character: number for number, character in enumerate(alphabet)}
    samples, users = [], []
    for user, text in zip(numbered(roles)[1], texts, strict=True):
        codes = np.array([code[character] for character in text], dtype=np.uint16)
        count = max(0, (len(codes) - 1) // SEQUENCE)
        starts = SEQUENCE * np.arange(count)[:, None]
        samples.append(codes[starts + np.arange(SEQUENCE + 1)])
        users.append(np.full(count, user))
    all_users = np.concatenate(users)
    kept = _frequent(all_users, np.ones(len(all_users), dtype=bool))
    _some(kept, "shakespeare", f"sequences of {SEQUENCE} characters of roles with at least {FEWEST_SAMPLES}")
    return {
        "codes": np.concatenate(samples)[kept],
        "users": numbered(all_users[kept])[1],
        "alphabet": np.array([ord(character) for character in alphabet], dtype=np.uint32),
    }


def _joined(roles: Sequence[str], before: Sequence[str], after: Sequence[str]) -> tuple[list[str], list[str]]:
    """Put the hub's windows together again: a passage, the character after it, and in the next row one further on.

    Windows overlap by all characters but one, so that samples made of them would give the test data away.
    """
    names: list[str] = []
    pieces: list[list[str]] = []
    window: dict[str, str] = {}
    piece_of: dict[str, list[str]] = {}
    for role, passage, character in zip(roles, before, after, strict=True):
        if passage and passage == window.get(role):
            piece_of[role].append(character)
        else:
            names.append(role)
            pieces.append([passage, character])
            piece_of[role] = pieces[-1]
        window[role] = (passage + character)[len(character) :]
    return names, ["".join(piece) for piece in pieces]


def _decode_cifar10(tables: Mapping[str, Rows]) -> Arrays:
    parts = [(rows.images("img", "RGB", (32, 32)), rows.column("label", "number")) for rows in tables.values()]
    return {
        "x": np.concatenate([images for images, _ in parts]),
        "y": np.concatenate([np.array(labels) for _, labels in parts]),
        "held_out": np.repeat([split == "test" for split in tables], [len(rows) for rows in tables.values()]),
    }


def _scaled(pixels: Array, by: float) -> Array:
    """Return the pixels divided, as float32 in C order, without further copies of what may be large."""
    return np.divide(pixels, np.float32(by), out=np.empty(pixels.shape, dtype=np.float32))


def _frequent(users: Array, counted: Array) -> Array:
    """Mark the samples of users with at least 10 that count."""
    marks: Array = np.bincount(users, weights=counted)[users] >= FEWEST_SAMPLES
    return marks


def _some(kept: Array, name: str, what: str) -> None:
    if not kept.any():
        raise InvalidInputError(f"the data set {name!r} has no {what}; check the data folder")
