"""What peers say on their links: what is read of it, and what is not."""

from __future__ import annotations

import pytest

from securedfl.network.core.messages import encode
from securedfl.network.letters import Cards, Ways, unpack
from securedfl.network.signing import MOST_CERTIFICATES
from securedfl.network.wire.frames import MAX_CONTROL
from securedfl.network.wire.keys import LONGEST_CERTIFICATE


@pytest.mark.parametrize("name", ["\x1b[2J\x1b[31mall is well", "p1\n", "a b", "x" * 64])
def test_names_that_no_peer_can_have_are_not_read_from_others(name):
    """They are shown by `securedfl check`, on somebody's terminal."""
    fine = Ways({"p1": "", "p2": "relay-a"})
    assert unpack(encode(fine)) == fine
    assert unpack(encode(Ways({name: ""}))) is None
    assert unpack(encode(Ways({"p1": name}))) is None


def test_however_many_certificates_are_known_each_letter_fits_a_link():
    known = [bytes([k % 256]) * LONGEST_CERTIFICATE for k in range(MOST_CERTIFICATES)]
    letters = Cards.of(known)
    assert [one for letter in letters for one in letter.certificates] == known
    for letter in letters:
        assert unpack(encode(letter)) == letter
        assert len(encode(letter)) <= MAX_CONTROL
