"""What an operator asks for while this site's peer does not run: its own log says at once what cannot be."""

import subprocess
import sys

import msgspec
import pytest

from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.local import COMMAND
from securedfl.network.core.entries import End, Remove, Settings, Start
from securedfl.network.core.messages import Boot, Decided
from securedfl.network.core.state import Rules, State, reduce
from securedfl.network.journal import Journal
from securedfl.network.operator import Wish, pending, why_not
from tests.network.core.test_journal import ROSTER

BEGUN = reduce(State("run", ROSTER, Settings(5)), Start(("a", "b", "c")), Rules())


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Wish("move", name="p9", address="host:1"), "'p9' is not in the roster"),
        (Wish("move", name="p1", address="nonsense"), "write HOST:PORT"),
        (Wish("move", name="p1", address="host2:1"), "another peer has that address"),
        (Wish("remove", name="p1"), "fewer than 3 peers would be left"),
        (Wish("add", name="p1", address="host9:1", fingerprint="0" * 64), "the name or number is taken"),
        (Wish("settings", rounds=4), "it is so already"),
        (Wish("settings", rounds=9), ""),
        (Wish("stop", reason="enough"), ""),
    ],
)
def test_what_cannot_be_is_known_without_the_others(wish, why):
    assert why in why_not(wish, BEGUN, "p0", Rules())
    assert bool(why) == bool(why_not(wish, BEGUN, "p0", Rules()))


def test_an_attempt_that_runs_is_no_reason_and_an_end_or_a_removal_is():
    running = msgspec.structs.replace(BEGUN, phase="committed", members=(0, 1, 2))
    assert why_not(Wish("move", name="p1", address="host9:1"), running, "p0", Rules()) == ""
    ended = reduce(BEGUN, End("enough"), Rules())
    assert why_not(Wish("settings", rounds=9), ended, "p0", Rules()) == "an operator ended the run"
    left = reduce(BEGUN, Remove(0), Rules())
    assert why_not(Wish("settings", rounds=9), left, "p0", Rules()).startswith("p0 was removed from the roster")
    assert why_not(Wish("remove", name="p1"), BEGUN, "p0", Rules(least=2)) == ""
    with_liars = why_not(Wish("remove", name="p1"), BEGUN, "p0", Rules(lying=1))
    assert "cannot withstand 1 that lie" in with_liars


def test_commands_ask_the_log_of_a_site_whose_peer_does_not_run(federation):
    made = federation(4, protocol="shares", group_size=2, rounds=5)
    config = PeerConfig.load(made.folder / "p0.toml")
    config.out.mkdir()
    genesis = FederationConfig.load(config.federation).genesis("design", "model")
    journal = Journal(config.state, genesis)
    journal.append([Boot(genesis.run, journal.incarnation, 1), Decided(0, Start(("a", "b", "c", "d")), ())], [])
    journal.close()

    def ask(*arguments):
        line = [sys.executable, "-c", COMMAND, *arguments]
        done = subprocess.run(line, cwd=made.folder, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stderr

    code, told = ask("roster", "move", "p0.toml", "p9", "--address", "host:1")
    assert code == 4
    assert "'p9' is not in the roster; it lists p0, p1, p2, p3. So says the log at this site" in told
    assert pending(config.state) is None
    code, told = ask("extend", "p0.toml", "--rounds", "9")
    assert code == 7
    assert "takes the place" not in told
    code, told = ask("stop", "p0.toml")
    assert code == 7
    assert "It takes the place of what was asked for before." in told
    assert pending(config.state).kind == "stop"
