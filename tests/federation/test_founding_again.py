"""`securedfl federation init --replace`: what was written by hand stays, and what is kept is said."""

import tomllib

import pytest
import tomli_w

from securedfl.errors import ConfigError
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from tests.federation.test_founding import invoke

SITES = ("a=h:1", "b=h:2", "c=none")
BY_HAND = """
name = "mine"
min_peers = 3
absence = "go on"   # agreed in May
[deadlines]
train = 7200
[train]
rounds = 7
seed = 5
[[relays]]
name = "relay-a"
address = "relay.example.org:7444"
"""


@pytest.fixture
def by_hand(tmp_path):
    """A federation whose files were changed by hand after the first command, and whose keys are there now."""
    init = ("federation", "init", *SITES, "--dir", tmp_path, "--entry=app:make", "--data=path=x", "--rounds=9")
    assert invoke(*init).exit_code == 0
    peers = tomllib.loads((tmp_path / "federation.toml").read_text())["peers"]
    (tmp_path / "federation.toml").write_text(tomli_w.dumps({"peers": peers}) + BY_HAND)
    site = (tmp_path / "b.toml").read_text().replace("runs/b", "/srv/b")
    (tmp_path / "b.toml").write_text(
        site.replace("\n[data]\n", '\nmetrics = "127.0.0.1:9100"\n[data]\nscanner = "3T"\n')
    )
    invoke("certs", "init", "--dir", tmp_path / "keys")
    for name in ("a", "b", "c", "relay-a"):
        invoke("certs", "issue", name, "--dir", tmp_path / "keys")
    return init


def test_what_was_written_by_hand_is_kept_when_fingerprints_are_filled_in(by_hand, tmp_path):
    comment = (tmp_path / "a.toml").read_text() + "# mine\n"
    (tmp_path / "a.toml").write_text(comment)
    again = invoke(*by_hand, "--replace")
    assert again.exit_code == 0, again.output
    federation = FederationConfig.load(tmp_path / "federation.toml")
    assert (federation.name, federation.min_peers, federation.absence) == ("mine", 3, "go on")
    assert (federation.deadlines.train, federation.training.seed) == (7200, 5)
    # what the command says counts
    assert (federation.training.rounds, federation.entry) == (9, "app:make")
    assert all(entry.fingerprint for entry in (*federation.peers, *federation.relays))
    site = PeerConfig.load(tmp_path / "b.toml")
    assert (str(site.out), site.metrics, site.data) == ("/srv/b", "127.0.0.1:9100", {"path": "x", "scanner": "3T"})
    assert f"Kept of {tmp_path / 'federation.toml'}: name, min_peers, absence, deadlines.train, train.seed, relays" in (
        again.stdout
    )
    assert "relays; its comments are gone" in again.stdout
    assert f"Kept of {tmp_path / 'b.toml'}: out, metrics, data.scanner" in again.stdout
    # there was nothing to change
    assert (tmp_path / "a.toml").read_text() == comment
    assert str(tmp_path / "c.toml:") not in again.stdout


def test_fingerprints_that_were_written_by_hand_stay_and_a_site_that_is_left_out_is_told(by_hand, tmp_path):
    assert invoke(*by_hand, "--replace").exit_code == 0
    before = FederationConfig.load(tmp_path / "federation.toml")
    (tmp_path / "keys" / "b.crt").unlink()
    assert invoke(*by_hand, "--replace").exit_code == 0
    assert FederationConfig.load(tmp_path / "federation.toml") == before
    moved = ["d=h:4" if word == "c=none" else word for word in by_hand]
    told = invoke(*moved, "--replace").stdout
    assert "No longer among the sites: c" in told
    assert [peer.name for peer in FederationConfig.resolve(filled(tmp_path)).peers] == ["a", "b", "d"]


def filled(folder):
    """Return federation.toml with fingerprints for all."""
    values = tomllib.loads((folder / "federation.toml").read_text())
    return values | {"peers": [{**entry, "fingerprint": f"{n:064x}"} for n, entry in enumerate(values["peers"], 1)]}


def test_a_site_that_listens_from_now_on_says_so_and_one_that_does_not_neither(by_hand, tmp_path):
    told = invoke(
        *("c=h:3" if word == "c=none" else "a=none" if word == "a=h:1" else word for word in by_hand), "--replace"
    )
    assert told.exit_code == 0, told.output
    assert [PeerConfig.load(tmp_path / f"{name}.toml").listen for name in "abc"] == [False, None, None]


def test_addresses_stay_and_secrets_are_as_private_as_they_were(tmp_path):
    init = ("federation", "init", "a", "b", "c", "--keys", "--dir", tmp_path)
    assert invoke(*init, "--rounds=2").exit_code == 0
    before = [peer.address for peer in FederationConfig.load(tmp_path / "federation.toml").peers]
    # without its name, so that the file is written again
    text = (tmp_path / "b.toml").read_text().replace('name = "b"\n', "")
    (tmp_path / "b.toml").write_text(text + 'proxy = "http://me:secret@proxy:3128"\n')
    (tmp_path / "b.toml").chmod(0o600)
    assert invoke(*init, "--rounds=3", "--replace").exit_code == 0
    federation = FederationConfig.load(tmp_path / "federation.toml")
    assert ([peer.address for peer in federation.peers], federation.training.rounds) == (before, 3)
    written = (tmp_path / "b.toml").read_text()
    assert ('name = "b"' in written, "secret" in written) == (True, True)
    assert (tmp_path / "b.toml").stat().st_mode & 0o777 == 0o600
    # data is handed to an entry that is there already
    assert invoke(*init, "--data=path=x", "--replace").exit_code == ConfigError.exit_code
    assert invoke(*init, "--entry=app:make", "--replace").exit_code == 0
    assert invoke(*init, "--data=path=x", "--replace").exit_code == 0


@pytest.mark.parametrize(
    "text",
    ["absence = ", 'abscence = "wait"', "relays = [1]", "deadlines = 1", '[[peers]]\nname = ["a"]\naddress = "h:1"'],
)
def test_a_file_that_cannot_be_kept_is_not_replaced(by_hand, tmp_path, text):
    (tmp_path / "federation.toml").write_text(text)
    refused = invoke(*by_hand, "--replace")
    assert refused.exit_code == ConfigError.exit_code
    assert str(tmp_path / "federation.toml") in refused.stderr
    assert (tmp_path / "federation.toml").read_text() == text
