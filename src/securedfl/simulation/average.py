"""The one-liner: average vectors or models of all peers in one process, by any protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.designs import Design, best, best_design, nearest
from securedfl.errors import DesignError, InvalidInputError, unknown
from securedfl.parameters import Schema, Tree, flatten_all
from securedfl.protocols import by_name
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.protocols.shares.shares import DEFAULT_COLLUSION
from securedfl.protocols.steps import Array
from securedfl.simulation.driver import Draws, NotFiniteError, Outcome, run

SHARING = ("shares", "resilient")
"""Protocols whose privacy depends on the number of partitions, so that the group size follows from the wish."""


def average(
    inputs: Iterable[Tree],
    weights: Iterable[float] | None = None,
    protocol: str = "grouped",
    *,
    design: Design | None = None,
    group_size: int | None = None,
    seed: int = 0,
    round: int = 0,
    max_weight: float | None = None,
    dtype: npt.DTypeLike | None = None,
    draws: Draws | None = None,
    chunk: int | None = None,
    threads: int | None = None,
    **options: Any,
) -> Tree:
    """Return the average of one vector, array or dict of arrays (a ``state_dict``) per peer.

    Parameters
    ----------
    inputs
        One per peer, all of the same structure. Whole-number arrays are averaged and rounded.
    weights
        How much each peer counts, for instance its number of samples. They stay as private as the parameters.
    protocol, **options
        ``"grouped"`` (rho, iterations, finish), ``"classic"`` (the same), ``"plain"``, or ``"shares"`` (strength or
        collusion, bits, range).
    design, group_size, seed
        Who meets whom; by default the best known design for that many peers, group size and seed. The group size, if
        not given, is what `securedfl.best_design` takes. All peers are in this one process, so nothing is refused
        here; ``securedfl audit`` tells what they would learn about each other.
    round
        Which partitions are used rotates with it.
    max_weight
        The largest weight that any peer may have, known to all; by default the largest of ``weights``.
    dtype
        Of the vectors that travel: ``"float32"`` or ``"float64"``; by default float64 if an input has it.
    draws, chunk, threads
        See `securedfl.simulation.run`.

    Examples
    --------
    >>> import numpy as np, securedfl
    >>> securedfl.average([np.full(4, k, dtype=np.float64) for k in range(9)]).round(9).tolist()
    [4.0, 4.0, 4.0, 4.0]
    """
    inputs = _one_per_peer(inputs)
    schema, vectors = flatten_all(inputs, dtype=None if dtype is None else np.dtype(dtype).name)
    n = len(vectors)
    if weights is not None:
        vectors = add_weights(vectors, weights, max_weight)
    elif max_weight is not None:
        raise InvalidInputError("max_weight is given but weights are not; pass one weight per peer")
    generator = by_name(protocol)
    _check_options(protocol, generator, options)
    if design is None and group_size is None and protocol in SHARING and options.get("strength") is None:
        design = best_design(n, collusion=options.get("collusion", DEFAULT_COLLUSION), seed=seed)
    elif design is None:
        design = nearest(n, seed=seed).design if group_size is None else best(n, group_size, seed)
    if design.n != n:
        raise DesignError(f"the design is for {design.n} peers, but {n} take part")
    peer_protocol = partial(generator, design=design, round=round, **options)
    try:
        outcome = run(peer_protocol, vectors, draws=draws, chunk=chunk, threads=threads)
    except NotFiniteError as error:
        raise NotFiniteError(error.peer, error.index, error.value, _name_at(schema, error.index)) from None
    except UnencodableError as error:
        raise error.at(name=_name_at(schema, error.index)) from None
    mean = outcome.average if weights is None else remove_weight(outcome.average)
    return schema.unflatten(mean, inputs[0])


def _one_per_peer(inputs: Any) -> list[Tree]:
    """Return what each peer has; rows of an array and what a generator gives will do."""
    if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable):
        raise InvalidInputError(
            f"pass a list with one vector or model per peer, not a {type(inputs).__name__}"
            + (
                "; list(the_dict.values()) is one, if the dict has one entry per peer"
                * isinstance(inputs, Mapping)
            )
        )
    return list(inputs)


def _check_options(protocol: str, generator: Callable[..., Any], options: Mapping[str, Any]) -> None:
    known = [
        name for name in signature(generator).parameters if name not in ("me", "w", "design", "round", "draw")
    ]
    for name in options:
        if name not in known:
            raise unknown(f"option of the protocol {protocol!r}:", name, known)


def _name_at(schema: Schema, index: int) -> str:
    """Return the name of the parameter at an index; behind the last one stands the peer's weight."""
    return schema.name_at(index) if index < schema.size else "weight"


def add_weights(
    vectors: Sequence[Array], weights: Iterable[float], max_weight: float | None = None
) -> list[Array]:
    """Turn each w into (a w, a), a = weight / max_weight, so that masks cover the weights too.

    Raises `InvalidInputError` for weights that are negative, not finite, above the maximum or all zero.
    """
    numbers = _weights(weights)
    if len(numbers) != len(vectors):
        raise InvalidInputError(f"{len(numbers)} weights for {len(vectors)} peers; pass one per peer")
    bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if bad.size:
        raise InvalidInputError(f"the weight of peer {bad[0]} is negative or not finite")
    if not numbers.any():
        raise InvalidInputError(
            "all weights are zero, so there is no average; give at least one peer a weight"
        )
    largest = float(numbers.max() if max_weight is None else max_weight)
    if not (np.isfinite(largest) and largest > 0):
        raise InvalidInputError("max_weight must be a positive finite number")
    above = np.flatnonzero(numbers > largest)
    if above.size:
        raise InvalidInputError(f"the weight of peer {above[0]} is above max_weight = {largest:g}")
    return [weigh(w, float(weight) / largest) for w, weight in zip(vectors, numbers, strict=True)]


def _weights(weights: Any) -> npt.NDArray[np.float64]:
    """Return weights as one array of numbers."""
    if not isinstance(weights, Mapping | str):
        with suppress(TypeError, ValueError):
            return np.array([float(weight) for weight in weights], dtype=np.float64)
    raise InvalidInputError("weights must be a list of numbers, one per peer")


def weigh(w: Array, a: float) -> Array:
    """Return (a w, a) as one vector."""
    result = np.empty(len(w) + 1, dtype=w.dtype)
    np.multiply(w, a, out=result[:-1])
    result[-1] = a
    return result


def remove_weight(mean: Array) -> Array:
    """Turn the averages of (a w, a) into the weighted average of w."""
    if not mean[-1] > 0:
        raise InvalidInputError(
            "the weights add up to zero, so there is no average; give at least one peer a weight"
        )
    if mean[-1] < np.sqrt(np.finfo(mean.dtype).eps):
        raise InvalidInputError(
            f"the weights are on average {mean[-1]:.1e} of max_weight, too little for {mean.dtype} to give a quotient; "
            "lower max_weight, or average in float64"
        )
    result: Array = mean[:-1] / mean[-1]
    return result


__all__ = ["Outcome", "average"]
