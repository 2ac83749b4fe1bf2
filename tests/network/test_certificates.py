"""The authority and its certificates: names, permissions, expiry, and pairs that do not belong together."""

from __future__ import annotations

import datetime as dt
import stat

import pytest

from securedfl.errors import ConfigError
from securedfl.network.wire import keys as certs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    certs.create_authority(folder)
    return folder


def test_a_certificate_names_its_peer_and_hosts(folder):
    files = certs.issue(folder, "hospital-a", ["127.0.0.1", "a.example.org"])
    info = certs.check_pair(files)
    assert info.name == "hospital-a"
    assert info.hosts == ("hospital-a", "127.0.0.1", "a.example.org")
    assert len(info.fingerprint) == 64
    assert info.valid()
    assert info.expiry() == ""


def test_keys_are_readable_by_their_owner_only(folder):
    files = certs.issue(folder, "tight")
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "ca.key").stat().st_mode) == 0o600
    files.key.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        certs.check_pair(files)


def test_expiry_is_told(folder):
    now = dt.datetime.now(dt.UTC)
    past = certs.issue(folder, "past", days=1, start=now - dt.timedelta(days=2))
    soon = certs.issue(folder, "soon", days=10)
    later = certs.issue(folder, "later", days=10, start=now + dt.timedelta(days=2))
    assert "expired on" in certs.describe(past.certificate).expiry()
    assert "expires in 9 days" in certs.describe(soon.certificate).expiry()
    assert "not valid before" in certs.describe(later.certificate).expiry()
    assert not certs.describe(past.certificate).valid()


def test_nothing_is_replaced_unasked(folder):
    first = certs.describe(certs.issue(folder, "twice").certificate)
    with pytest.raises(ConfigError, match="--renew"):
        certs.issue(folder, "twice")
    again = certs.describe(certs.issue(folder, "twice", renew=True).certificate)
    assert again.fingerprint != first.fingerprint
    with pytest.raises(ConfigError, match="already holds an authority"):
        certs.create_authority(folder)


@pytest.mark.parametrize("name", ["", "UPPER", "has space", "-a", "a-", "a.b", "ä", "x" * 64, "../up"])
def test_bad_names(folder, name):
    with pytest.raises(ConfigError, match="cannot be a peer's name"):
        certs.issue(folder, name)


def test_files_that_do_not_belong_together(folder, tmp_path):
    one, two = certs.issue(folder, "one"), certs.issue(folder, "two")
    with pytest.raises(ConfigError, match="does not belong"):
        certs.check_pair(certs.KeyFiles(one.key, two.certificate, one.authority))
    certs.create_authority(tmp_path)
    with pytest.raises(ConfigError, match="not issued by"):
        certs.check_pair(certs.KeyFiles(one.key, one.certificate, tmp_path / "ca.crt"))
    with pytest.raises(ConfigError, match="cannot read"):
        certs.check_pair(certs.KeyFiles(one.key, tmp_path / "none.crt", one.authority))
    with pytest.raises(ConfigError, match="not a PEM"):
        certs.check_pair(certs.KeyFiles(one.key, two.certificate, one.key))
    with pytest.raises(ConfigError, match="holds no authority"):
        certs.issue(tmp_path / "nowhere", "one")


def test_a_certificate_that_no_peer_would_take_is_not_made(folder):
    """It would be dropped by all others, in silence, and no average could begin."""
    with pytest.raises(ConfigError, match=r"certificate of b is too long .* name fewer hosts"):
        certs.issue(folder, "b", [f"host-{k:03d}.of-a-large-hospital.example.org" for k in range(200)])
    assert not (folder / "b.key").exists()
