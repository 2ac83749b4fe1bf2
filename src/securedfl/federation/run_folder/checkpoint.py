"""Checkpoints: parameters, optimiser states and round of one method, as safetensors.

A thread writes them while the next round trains; a run that is killed meanwhile goes on from the one before.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from securedfl.errors import RunFolderError
from securedfl.federation.run_folder.files import RESUME
from securedfl.learning.training.task import State
from securedfl.parameters import Array
from securedfl.storage import damaged, make_folder, replacing

FORMAT = 2
MOST_PEERS = 10**6
PARAMETERS = "parameters"
RESIDUALS, COMMON = "residuals", "held"
OPTIMIZER = "optimizer."
ONE_PEER = "peer."
"""Before the number of a peer, and the name of an array that not all peers have alike."""


_DAMAGED = (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError)
"""What comes of a text about a checkpoint that is not as `save` writes it."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a method stands after a round.

    Attributes
    ----------
    method, round
        Of what and when.
    identity
        Hashes of settings, design and model that the checkpoint belongs to.
    parameters
        One row per peer, or a single row that all peers hold.
    states
        What each peer keeps besides: its optimiser's state, and what stays at home.
    residuals
        What each peer rounded off, if it is kept.
    common
        What all peers hold, if it is more than the model: the state of its optimiser, too.
    """

    method: str
    round: int
    identity: dict[str, str]
    parameters: Array
    states: list[State]
    residuals: Sequence[Array] | None = None
    common: Array | None = None


def snapshot(parameters: Array) -> Array:
    """Copy the rows, or only the first if all peers hold the same."""
    same = all(np.array_equal(parameters[0], row) for row in parameters[1:])
    return parameters[:1].copy() if same else parameters.copy()


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; what was there before stays until the new one is on disk."""
    arrays = {PARAMETERS: np.ascontiguousarray(checkpoint.parameters), **_stack(checkpoint.states)}
    if checkpoint.residuals is not None:
        arrays[RESIDUALS] = np.stack(checkpoint.residuals)
    if checkpoint.common is not None:
        arrays[COMMON] = checkpoint.common
    about: dict[str, Any] = {
        "format": FORMAT,
        "method": checkpoint.method,
        "round": checkpoint.round,
        "peers": len(checkpoint.states),
        "identity": checkpoint.identity,
    }
    about["checksum"] = _checksum(about, arrays)
    _write(path, arrays, {"securedfl": json.dumps(about)})


def save_parameters(path: Path, parameters: Array) -> None:
    """Write rows of parameters and nothing else, in a folder that is made if need be."""
    make_folder(path.parent, RESUME)
    _write(path, {PARAMETERS: np.ascontiguousarray(parameters)})


def load_parameters(path: Path) -> Array:
    """Read what `save_parameters` wrote; a damaged file is a `RunFolderError`."""
    try:
        with safe_open(path, framework="numpy") as file:
            parameters: Array = file.get_tensor(PARAMETERS)
            return parameters
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise damaged(path, error, "delete its run to train it again") from None


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; a damaged one is a `RunFolderError`."""
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {})["securedfl"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        if about["format"] != FORMAT:
            raise RunFolderError(f"the checkpoint {path} has format {about['format']}, this version reads {FORMAT}")
        if about["checksum"] != _checksum(about, arrays):
            raise ValueError("its checksum does not match")
        residuals, common = arrays.pop(RESIDUALS, None), arrays.pop(COMMON, None)
        if (peers := int(about["peers"])) not in range(1, MOST_PEERS):
            raise ValueError(f"it tells of {peers} peers")
        states = _unstack(arrays, peers)
        return Checkpoint(
            str(about["method"]),
            int(about["round"]),
            dict(about["identity"]),
            arrays[PARAMETERS],
            states,
            None if residuals is None else list(residuals),
            common,
        )
    except (*_DAMAGED, OSError, SafetensorError) as error:
        raise damaged(path, error, "delete it to train this method again from the start") from None


@contextmanager
def in_background(save: Callable[[Checkpoint], None]) -> Iterator[Callable[[Checkpoint], None]]:
    """Give a function that saves in a thread, one checkpoint at a time; an error surfaces at its next call, or here."""
    pending: Future[None] | None = None

    def submit(checkpoint: Checkpoint) -> None:
        nonlocal pending
        if pending is not None:
            pending.result()
        pending = pool.submit(save, checkpoint)

    with ThreadPoolExecutor(1, thread_name_prefix="checkpoint") as pool:
        yield submit
        if pending is not None:
            pending.result()


def _write(path: Path, arrays: dict[str, Array], metadata: dict[str, str] | None = None) -> None:
    with replacing(path, RESUME) as temporary:
        try:
            save_file(arrays, temporary, metadata=metadata)
        except SafetensorError as error:  # how safetensors tells of a full disk
            code = re.search(r"os error (\d+)", str(error))
            raise OSError(int(code[1]) if code else 0, str(error)) from None


def _stack(states: Sequence[State]) -> dict[str, Array]:
    """Turn states of all peers into one array per name, where all have it in the same shape; else, one per peer."""
    kinds = [{name: (value.shape, value.dtype) for name, value in state.items()} for state in states]
    alike = {name for name, kind in kinds[0].items() if all(other.get(name) == kind for other in kinds)}
    found = {f"{OPTIMIZER}{name}": np.stack([state[name] for state in states]) for name in states[0] if name in alike}
    for peer, state in enumerate(states):
        own = {name: value for name, value in state.items() if name not in alike}
        found |= {f"{ONE_PEER}{peer}.{name}": np.ascontiguousarray(value) for name, value in own.items()}
    return found


def _unstack(arrays: dict[str, Array], peers: int) -> list[State]:
    stacked = {name.removeprefix(OPTIMIZER): value for name, value in arrays.items() if name.startswith(OPTIMIZER)}
    if any(len(value) != peers for value in stacked.values()):
        raise ValueError(f"it does not hold {peers} optimiser states")
    states = [{name: value[peer] for name, value in stacked.items()} for peer in range(peers)]
    for name, value in arrays.items():
        if name.startswith(ONE_PEER):
            peer, _, own = name.removeprefix(ONE_PEER).partition(".")
            states[int(peer)][own] = value
    return states


def _checksum(about: dict[str, Any], arrays: dict[str, Array]) -> int:
    """Sum up the arrays and all that is said about them, so that neither can change unnoticed."""
    told = {key: value for key, value in about.items() if key != "checksum"}
    checksum = zlib.crc32(json.dumps(told, sort_keys=True).encode())
    for name in sorted(arrays):
        checksum = zlib.crc32(np.ascontiguousarray(arrays[name]).data, zlib.crc32(name.encode(), checksum))
    return checksum
