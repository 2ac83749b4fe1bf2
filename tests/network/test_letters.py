"""What peers say on their links: what is read of it, and what is not."""

from __future__ import annotations

import pytest

from securedfl.network.letters import Ways, pack, unpack


@pytest.mark.parametrize("name", ["\x1b[2J\x1b[31mall is well", "p1\n", "a b", "x" * 64])
def test_names_that_no_peer_can_have_are_not_read_from_others(name):
    """They are shown by `securedfl check`, on somebody's terminal."""
    fine = Ways({"p1": "", "p2": "relay-a"})
    assert unpack(pack(fine)) == fine
    assert unpack(pack(Ways({name: ""}))) is None
    assert unpack(pack(Ways({"p1": name}))) is None
