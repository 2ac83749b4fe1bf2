"""The audit driver: runs a protocol's own generators on symbols and tells what a coalition can compute.

Every peer gets one symbol per coordinate as its parameters, and every draw returns fresh symbols. The arithmetic is
linear, so each message *is* a row of coefficients. A coalition knows its members' symbols and the rows they
received. Eliminating the honest peers' masks leaves all linear functions of the honest peers' parameters that it can
compute, and no others (docs/mathematics/privacy.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securedfl.errors import PeerLostError, PrivacyError
from securedfl.privacy.symbolic.algebra import Coefficients, Matrix, PrimeField, Ring, eliminate, reduce
from securedfl.privacy.symbolic.forms import Form, exactly
from securedfl.privacy.symbolic.sums import computable_sums, connected
from securedfl.protocols.steps import Array, Inbox, Outbox, PeerProtocol, Steps, in_one_part


@dataclass(frozen=True)
class Knowledge:
    """What a coalition can compute about the honest peers, beyond the total that everybody learns.

    Attributes
    ----------
    coalition
        Its members.
    exposed
        The honest peers of whose parameters at least one coordinate can be computed.
    sums
        The smallest sets of honest peers, neither one nor all, whose sum can be computed.
    dimension
        How many independent linear functions can be computed that do not follow from the total.
    """

    coalition: tuple[int, ...]
    exposed: tuple[int, ...]
    sums: tuple[tuple[int, ...], ...]
    dimension: int


class View:
    """All messages of one average as rows of coefficients, and who owns which symbol.

    Columns are ordered masks first, then parameters peer by peer. Symbols that no message connects are treated
    apart, because a protocol with element-wise arithmetic never mixes coordinates: `Component` is one such part.
    """

    def __init__(
        self,
        n: int,
        coordinates: int,
        ring: Ring,
        owners: Sequence[int],
        received: Sequence[Sequence[Sequence[Form]]],
    ) -> None:
        self.n, self.coordinates, self.ring = n, coordinates, ring
        self.steps = len(received)
        params = n * coordinates
        # symbol 0 is the constant, which everybody knows and no column is needed for
        columns = np.concatenate([np.arange(1 + params, len(owners)), np.arange(1, 1 + params)])
        rows = [[_table(forms, len(owners), ring)[:, columns] for forms in step] for step in received]
        masks = len(columns) - params
        owner, places = np.asarray(owners)[columns], np.concatenate([np.full(masks, -1), np.arange(params)])
        parts = _parts(rows, coordinates, masks, len(columns)) if coordinates > 1 else [np.arange(len(columns))]
        self._components = [Component(coordinates, ring, owner, places, rows, part) for part in parts]

    def functions(
        self, coalition: Iterable[int], steps: int | None = None, *, total: bool = True
    ) -> list[tuple[Array, Matrix]]:
        """Return bases of the functions of honest parameters that a coalition can compute.

        One basis per component, with the places (peer times coordinates plus coordinate) that its columns stand for.
        ``total=False`` leaves out the total where the messages do not give it, as in an aborted average.
        """
        members = sorted(set(coalition))
        until = self.steps if steps is None else steps
        return [(part.places, part.functions(members, until, total=total)) for part in self._components]

    def knowledge(self, coalition: Iterable[int], steps: int | None = None, *, sums: bool = True) -> Knowledge:
        """Return what a coalition learns from the first steps, or from all, together with the total.

        ``sums=False`` leaves out the sums of several peers, which take a search.
        """
        members = tuple(sorted({int(member) for member in coalition}))
        if not members or not all(0 <= member < self.n for member in members) or len(members) >= self.n:
            last = self.n - 1
            raise PrivacyError(f"{list(members)} is no coalition: name 1 to {last} of the peers 0 to {last}")
        bases = self.functions(members, steps)
        single = [int(places[row != 0][0]) for places, basis in bases for row in basis if np.count_nonzero(row) == 1]
        found = computable_sums(bases, self.coordinates, self.ring) if sums else []
        return Knowledge(
            coalition=members,
            exposed=tuple(sorted({place // self.coordinates for place in single})),
            sums=tuple(peers for peers in found if 1 < len(peers) < self.n - len(members)),
            dimension=sum(len(basis) for _, basis in bases) - self.coordinates,
        )


class Component:
    """Symbols that messages connect with each other but with no others."""

    def __init__(
        self,
        coordinates: int,
        ring: Ring,
        owners: Array,
        places: Array,
        rows: Sequence[Sequence[Matrix]],
        part: Array,
    ) -> None:
        self._ring = ring
        self._owners = owners[part]
        self.masks = int((places[part] < 0).sum())
        self.places = places[part][self.masks :]
        self._width = len(part)
        self._rows = [[_touching(table, part) for table in step] for step in rows]
        self._bases: dict[tuple[int, int], Matrix] = {}
        own = np.unique(self.places % coordinates)
        self._totals = (self.places % coordinates == own[:, None]).astype(ring.dtype)

    def basis(self, peer: int, steps: int) -> Matrix:
        """Return a basis of what a peer received in the first steps."""
        if steps == 0:
            return np.zeros((0, self._width), dtype=self._ring.dtype)
        if (peer, steps) not in self._bases:
            before, new = self.basis(peer, steps - 1), self._rows[steps - 1][peer]
            self._bases[peer, steps] = reduce(np.vstack([before, new]), self._ring) if len(new) else before
        return self._bases[peer, steps]

    def functions(self, members: Sequence[int], steps: int, *, total: bool) -> Matrix:
        """Return a basis of the functions of its honest parameters that the members can compute."""
        known = np.isin(self._owners, members)
        nothing = np.zeros((0, self._width), dtype=self._ring.dtype)
        rows = np.vstack([nothing, *(self.basis(member, steps) for member in members)])
        rows[:, known] = 0  # the coalition subtracts what it knows itself
        computable = eliminate(rows, self.masks, self._ring)
        if total:
            computable = np.vstack([computable, self._totals * ~known[self.masks :]])
        return reduce(computable, self._ring)


def observe(protocol: PeerProtocol, n: int, *, coordinates: int = 1, ring: Ring | None = None) -> View:
    """Run the generators of n peers on symbols and return all that was received.

    Parameters
    ----------
    protocol
        Called as ``protocol(me, w, draw=draw)``; ``w`` is an object array of `Form`. Give real-valued options as
        fractions (`exact_options`), so that the arithmetic stays exact.
    n
        The number of peers.
    coordinates
        How many parameters; more than one where a protocol treats slices differently.
    ring
        `TwoAdic` for protocols over Z_2^b; by default a prime field, for protocols over the real numbers.
    """
    ring = ring or PrimeField.chosen_by(f"{n} {coordinates}")
    owners, steps = symbolic(protocol, n, coordinates, ring)
    received = [
        [list({id(form): form for message in inbox.values() for form in message}.values()) for inbox in inboxes]
        for inboxes in steps
    ]
    return View(n, coordinates, ring, owners, received)


def symbolic(
    protocol: PeerProtocol, n: int, coordinates: int, ring: Coefficients
) -> tuple[list[int], list[list[dict[int, list[Form]]]]]:
    """Run a protocol on symbols.

    Returns
    -------
    owners, steps
        The owner of each symbol: the constant (-1), all parameters peer by peer, then draws in the order in which
        they were made; and for each step and receiver the forms that each sender sent.
    """
    owners = [-1]

    def draw_for(peer: int) -> Callable[[Array], Array]:
        def draw(like: Array) -> Array:
            fresh = np.empty(np.shape(like), dtype=object)
            for place in np.ndindex(fresh.shape):
                fresh[place] = Form.unit(len(owners), ring)
                owners.append(peer)
            return fresh

        return draw

    parameters = [draw_for(peer)(np.empty(coordinates)) for peer in range(n)]
    whole = in_one_part(protocol)
    peers = [whole(me, w, draw=draw_for(me)) for me, w in enumerate(parameters)]
    steps = [
        [{sender: _forms(message) for sender, message in inbox.items()} for inbox in inboxes]
        for inboxes in _lockstep(peers)
    ]
    return owners, steps


def _lockstep(peers: Sequence[Steps]) -> Iterator[list[Inbox]]:
    """Let every peer send, deliver, repeat; yield the inboxes of each step."""
    inboxes: list[Inbox] | None = None
    running = dict(enumerate(peers))
    while running:
        outboxes: dict[int, Outbox] = {}
        for me, peer in list(running.items()):
            try:
                outboxes[me] = next(peer) if inboxes is None else peer.send(inboxes[me])
            except StopIteration:
                del running[me]
            except PeerLostError as error:
                raise PrivacyError(f"the protocol cannot be audited: peer {me} waits for a message: {error}") from None
        if not outboxes:
            return
        inboxes = [Inbox() for _ in peers]
        for sender, outbox in outboxes.items():
            for receiver, message in outbox.items():
                inboxes[receiver][sender] = message
        yield inboxes


def _forms(message: Any) -> list[Form]:
    """Return the forms of a message; numbers are public constants and reveal nothing."""
    forms = []
    for entry in np.asarray(message, dtype=object).flat:
        if isinstance(entry, Form):
            forms.append(entry)
        elif exactly(entry) is None:
            raise PrivacyError(
                f"a message holds {type(entry).__name__}, of which the audit cannot tell what it reveals"
            )
    return forms


def _table(forms: Sequence[Form], symbols: int, ring: Ring) -> Matrix:
    return np.array([form.padded(symbols) for form in forms], dtype=ring.dtype).reshape(-1, symbols)


def _touching(table: Matrix, part: Array) -> Matrix:
    """Return the columns of a part, of the rows that are not zero there."""
    columns: Matrix = table[:, part]
    return columns[columns.any(axis=1)]


def _parts(rows: Sequence[Sequence[Matrix]], coordinates: int, masks: int, columns: int) -> list[Array]:
    """Return the columns that messages, or the total of a coordinate, connect."""
    ties = [np.flatnonzero(row).tolist() for step in rows for table in step for row in table]
    ties += [list(range(masks + k, columns, coordinates)) for k in range(coordinates)]
    first = connected(ties, columns)
    # a mask that no parameter is tied to hides nothing, so its part can be left out
    return [np.flatnonzero(first == part) for part in np.unique(first[masks:])]
