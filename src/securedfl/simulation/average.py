"""The one-liner: average vectors or models of all peers in one process, by any protocol."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from securedfl.containers import Container, flatten_all
from securedfl.designs import Design
from securedfl.errors import ConfigError, InvalidInputError, whole_number
from securedfl.parameters import Array, Integers, Schema, Tree
from securedfl.protocols.fixedpoint import FixedPoint, UnencodableError
from securedfl.protocols.protocol import BUILT_IN, Averaging, Protocol, averaging, by_name
from securedfl.simulation.driver import Draws, NotFiniteError, run
from securedfl.weights import add_weights, remove_weight


def average(
    inputs: Iterable[Tree],
    *,
    weights: Iterable[float] | None = None,
    protocol: str | Protocol = "grouped",
    design: Design | None = None,
    group_size: int | Literal["auto"] = "auto",
    collusion: int | None = None,
    seed: int = 0,
    round: int = 0,
    max_weight: float | None = None,
    integers: Integers = "own",
    local: Iterable[str] = (),
    dtype: npt.DTypeLike | None = None,
    draws: Draws | None = None,
    chunk: int | None = None,
    threads: int | None = None,
    in_place: bool = False,
    **options: Any,
) -> Tree:
    """Return the average of one model per peer.

    Parameters
    ----------
    inputs
        One per peer, all of the same structure: an array or tensor, a dict of them (a ``state_dict``), a list of them,
        a PyTorch module, a PEFT model (of which the adapter's trained parameters are averaged), an optimiser (of which
        the parameters are averaged, and the state is not), or ``model.parameters()``. Parameters that require no
        gradient are not averaged.
    weights
        How much each peer counts, for instance its number of samples. They stay as private as the parameters.
    protocol, **options
        ``"grouped"`` (bits, range, iterations), ``"shares"`` or ``"resilient"`` (strength, bits, range), ``"plain"``,
        ``"paper"`` or ``"classic"`` (rho, iterations, finish), or a `Protocol` of your own. Without a ``range``,
        values beyond the usual one get a range that fits them.
    collusion
        Of the share protocols, instead of the strength: how many colluders must learn nothing but the total.
    design, group_size, seed
        Who meets whom; by default the best known design that withstands so many colluders (1). All peers are in
        this one process, so nothing is refused here; `certify` tells what they would learn about each other.
    round
        Which partitions are used rotates with it.
    max_weight
        The largest weight that any peer may have, known to all; by default the largest of ``weights``.
    integers
        What becomes of whole-number arrays beside floats, such as counters: ``"own"`` keeps those of the first input,
        ``"average"`` averages and rounds them. Inputs of nothing but whole numbers are always averaged.
    local
        Patterns (``"head.*"``) of names that are not averaged. The result has those of the first input, uncopied.
    dtype
        Of the vectors that travel: ``"float32"`` or ``"float64"``; by default float64 if an input has it.
    draws, chunk, threads
        See `securedfl.simulation.run`.
    in_place
        Replace the inputs' parameters by the average, and return the inputs; `average_` does.

    Returns
    -------
    Tree
        The average: an array, a dict of arrays, for a module a state dict, for a PEFT model a dict of its trained
        parameters, for optimisers and lists a list. What is not averaged is that of the first input.

    Raises
    ------
    InvalidInputError
        Inputs that differ, are not finite, or cannot be encoded; weights that make no average.
    ConfigError, DesignError
        Unknown or impossible options.

    Examples
    --------
    >>> import numpy as np, securedfl
    >>> securedfl.average([np.full(4, k, dtype=np.float64) for k in range(9)]).round(9).tolist()
    [4.0, 4.0, 4.0, 4.0]
    """
    containers = _one_per_peer(inputs)
    kind = None if dtype is None else _dtype(dtype)
    schema, vectors = flatten_all(containers, dtype=kind, integers=integers, local=local)
    for one in containers if in_place else ():
        one.check_in_place(schema)
    row = by_name(protocol)
    row.check_names(options, average.__kwdefaults__ or ())
    if collusion is not None and "collusion" not in row.options:
        takers = " and ".join(f'"{name}"' for name, one in BUILT_IN.items() if "collusion" in one.options)
        raise ConfigError(f"collusion is for the protocols {takers}; {row.name!r} would promise nothing about it")
    together = averaging(
        row, len(vectors), design=design, group_size=group_size, collusion=collusion, seed=seed, options=options
    ).at(whole_number(round, "round", least=0))
    codec = together.codec
    unit = 1.0 if codec is None else min(1.0, codec.limit(codec.width(vectors[0])))
    if weights is not None:
        vectors = add_weights(vectors, weights, max_weight, unit)
    elif max_weight is not None:
        raise InvalidInputError("max_weight is given but weights are not; pass one weight per peer")
    try:
        mean, used = _fitted(together, vectors, draws=draws, chunk=chunk, threads=threads)
    except NotFiniteError as error:
        raise NotFiniteError(error.peer, error.index, error.value, _name_at(schema, error.index)) from None
    except UnencodableError as error:
        raise error.at(name=_name_at(schema, error.index)) from None
    if weights is not None:
        mean = remove_weight(mean, unit, 0.0 if used is None else used.step(mean, len(vectors)))
    if not in_place:
        return containers[0].made(schema, mean)
    for one in containers:
        one.put(schema, mean)
    return [one.given for one in containers]


def _dtype(given: npt.DTypeLike) -> str:
    try:
        return np.dtype(given).name
    except TypeError:
        raise ConfigError(f'the dtype must be "float32" or "float64", not {given!r}') from None


def average_(inputs: Iterable[Tree], **options: Any) -> list[Any]:
    """Replace the parameters of one model per peer by their average, in place.

    Parameters
    ----------
    inputs
        As for `average`, but what can be changed in place: no plain numbers, no read-only arrays. What is not averaged
        stays as each input has it.
    **options
        As for `average`.

    Returns
    -------
    list
        The inputs.

    Raises
    ------
    InvalidInputError, ConfigError, DesignError
        As for `average`, before any input is changed.

    Examples
    --------
    >>> import numpy as np, securedfl
    >>> vectors = [np.full(2, k, dtype=np.float64) for k in range(9)]
    >>> _ = securedfl.average_(vectors)
    >>> vectors[8].round(9).tolist()
    [4.0, 4.0]
    """
    found: list[Any] = average(inputs, in_place=True, **options)
    return found


def _fitted(together: Averaging, vectors: list[Array], **driving: Any) -> tuple[Array, FixedPoint | None]:
    """Return the average and its codec; where no range is given and the usual one is too narrow, in one that fits."""
    try:
        return run(together, vectors, **driving).average, together.codec
    except UnencodableError as error:
        if together.given.get("range") is not None or together.given.get("codec") is not None:
            raise
        wider = replace(together, given={**together.given, "range": _fitting(vectors)})
        try:
            return run(wider, vectors, **driving).average, wider.codec
        except ConfigError:
            # no range is wide enough for such values
            raise error from None


def _fitting(vectors: Iterable[npt.NDArray[Any]]) -> float:
    """Return the power of two that bounds all values; only who holds all vectors can tell."""
    # exactly: a logarithm is rounded
    part, exponent = math.frexp(max(float(np.abs(vector).max()) for vector in vectors))
    return math.ldexp(1.0, exponent - (part == 0.5))


def _one_per_peer(inputs: Any) -> list[Container]:
    """Open what each peer has; rows of an array and what a generator gives will do."""
    if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable) or hasattr(inputs, "state_dict"):
        hint = "; list(the_dict.values()) is one, if the dict has one entry per peer"
        raise InvalidInputError(
            f"pass a list with one vector or model per peer, not a {type(inputs).__name__}"
            + hint * isinstance(inputs, Mapping)
        )
    return [Container.of(one) for one in inputs]


def _name_at(schema: Schema, index: int) -> str:
    """Return the name of the parameter at an index; behind the last one stands the peer's weight."""
    return schema.name_at(index) if index < schema.size else "weight"
