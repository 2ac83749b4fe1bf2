"""`securedfl roster`: what it says of sites that only dial out, of blocks, and of a wish that stands."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tomli_w
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.errors import ConfigError
from securedfl.federation.checking import standing as standing_of
from securedfl.federation.checking.standing import Member, Standing
from securedfl.network.wire import keys as certificates
from securedfl.network.wire import requests


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a site whose peer grants every wish, what it was asked for, and what its log says."""
    certificates.create_authority(tmp_path)
    for name in ("a", "d"):
        certificates.issue(tmp_path, name)
    own = {"name": "a", "federation": "federation.toml", "out": "out"}
    own |= {"key": "a.key", "certificate": "a.crt", "authority": "ca.crt"}
    (tmp_path / "a.toml").write_text(tomli_w.dumps(own))
    made = SimpleNamespace(folder=tmp_path, wishes=[], block=0, asked="")

    def grant(_config, wish, _wait):
        made.wishes.append(wish)
        return "granted"

    def now(_path):
        fingerprint = certificates.describe(tmp_path / "d.crt").fingerprint
        members = (Member(7, "d", "", fingerprint, True),)
        return Standing("trial", 3, 9, "training", "", members, made.block, made.asked)

    monkeypatch.setattr("securedfl.cli.roster.wanted", grant)
    monkeypatch.setattr(standing_of, "standing", now)
    return made


def test_nobody_is_asked_for_where_a_known_data_set_is_dealt_already(site):
    peers = [{"name": name, "fingerprint": digit * 64} for name, digit in (("a", "1"), ("b", "2"), ("c", "3"))]
    arguments = ["roster", "add", str(site.folder / "a.toml"), "--certificate", str(site.folder / "d.crt")]

    def asked(**settings):
        (site.folder / "federation.toml").write_text(tomli_w.dumps({"peers": peers, **settings}))
        site.wishes.clear()
        return CliRunner().invoke(app, arguments)

    # a loop that has joined counts no data
    assert asked().exit_code == 0
    (site.folder / "out").mkdir()
    (site.folder / "out" / "data.json").write_text("{}")
    refused = asked()
    assert (refused.exit_code, site.wishes) == (4, [])
    assert "d is not asked for, because it could not start: the data set digits is dealt among the 3" in refused.stderr
    assert asked(entry="app:make").exit_code == 0


def roster(site, *arguments):
    result = CliRunner().invoke(app, ["roster", arguments[0], str(site.folder / "a.toml"), *arguments[1:]])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("given", [(), ("--address", "none")])
def test_a_site_that_only_dials_out_is_added(site, given):
    told = roster(site, "add", "--certificate", str(site.folder / "d.crt"), *given)
    assert (site.wishes[0].kind, site.wishes[0].address) == ("add", "")
    assert "number 7, so entry 8" in told
    assert "address" not in told
    assert "listen = false" in told


def test_a_site_moves_to_where_it_only_dials_out_and_back(site):
    assert "The peer.toml of d says from its next start on: listen = false" in roster(
        site, "move", "d", "--address=none"
    )
    assert 'listen = "HOST:PORT"' in roster(site, "move", "d", "--address=d.example.org:7443")
    assert [wish.address for wish in site.wishes] == ["", "d.example.org:7443"]


@pytest.mark.parametrize(("block", "said"), [(0, False), (3, True)])
def test_an_added_site_waits_for_a_block_of_new_ones_and_that_is_said(site, block, said):
    site.block = block
    told = roster(site, "add", "--certificate", str(site.folder / "d.crt"), "--address=d.example.org:7443")
    assert ("it takes part once 3 new sites are there" in told) == said
    assert ('absence = "blocks"' in told) == said


def test_roster_show_and_certs_show_write_fingerprints_alike_and_a_wish_that_stands_is_told(site):
    site.asked = "one more round"
    told = roster(site, "show")
    fingerprint = certificates.describe(site.folder / "d.crt").fingerprint
    assert f"d  only dials out  {fingerprint}  added later" in told
    assert "Asked for at this site, and not decided: one more round" in told
    shown = CliRunner().invoke(app, ["certs", "show", str(site.folder / "d.crt")]).stdout
    assert f"{fingerprint}  d" in shown


def test_nobody_is_told_of_a_key_that_its_own_site_does_not_have_in_use(site):
    """It would be locked out at its next start."""
    requests.request(site.folder, "a", renew=True)
    certificate = requests.sign(site.folder, site.folder / "a.csr", renew=True)
    arguments = ["roster", "renew", str(site.folder / "a.toml"), "--certificate", str(certificate)]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == ConfigError.exit_code
    assert f"first: securedfl certs install {certificate} --dir {site.folder}" in refused.stderr
    assert not site.wishes
    requests.install(site.folder, certificate)
    roster(site, "renew", "--certificate", str(site.folder / "a.crt"))
    assert site.wishes[0].fingerprint == certificates.describe(site.folder / "a.crt").fingerprint
