"""``securedfl certs`` and ``securedfl relay``: keys made at the sites, and a relay as a process."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from securedfl.cli.certs import certs
from securedfl.errors import ConfigError, RunFolderError
from securedfl.network.wire import keys, requests


def run(*arguments):
    result = CliRunner().invoke(certs, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def authority(tmp_path):
    run("init", "--dir", tmp_path / "keys")
    return tmp_path / "keys"


def test_a_site_makes_its_own_key_and_the_authority_signs(authority, tmp_path):
    site = tmp_path / "site"
    told = run("request", "hospital-a", "--host", "a.example.org", "--dir", site)
    assert "certs sign hospital-a.csr --dir KEYS    # KEYS is the folder with ca.key" in told
    assert stat.S_IMODE((site / "hospital-a.key").stat().st_mode) == 0o600
    output = run("sign", site / "hospital-a.csr", "--dir", authority)
    certificate = authority / "hospital-a.crt"
    info = keys.check_pair(keys.KeyFiles(site / "hospital-a.key", certificate, authority / "ca.crt"))
    assert info.hosts == ("hospital-a", "a.example.org")
    assert f'address = "a.example.org:7443"\nfingerprint = "{info.fingerprint}"' in output
    assert not (authority / "hospital-a.key").exists()
    with pytest.raises(ConfigError, match="--renew"):
        run("sign", site / "hospital-a.csr", "--dir", authority)
    run("sign", site / "hospital-a.csr", "--dir", authority, "--renew")
    assert keys.describe(certificate).fingerprint != info.fingerprint


def test_the_command_that_signs_is_told_as_it_works(authority):
    told = run("request", "hospital-a", "--dir", authority)
    (line,) = (line for line in told.splitlines() if line.startswith("securedfl certs sign"))
    run(*shlex.split(line)[2:])
    assert (authority / "hospital-a.crt").exists()


@pytest.fixture
def site(authority, tmp_path):
    """A site whose key is in use; the authority is elsewhere."""
    folder = tmp_path / "site"
    run("request", "a", "--dir", folder)
    run("sign", folder / "a.csr", "--dir", authority)
    for name in ("a.crt", "ca.crt"):
        shutil.copy(authority / name, folder / name)
    return folder


def pair(site):
    return keys.check_pair(keys.KeyFiles(site / "a.key", site / "a.crt", site / "ca.crt")).fingerprint


def test_a_key_in_use_stays_until_its_successor_is_installed_with_its_certificate(authority, site, tmp_path):
    """It may take days until the certificate is there."""
    old = pair(site)
    told = run("request", "a", "--host", "a.example.org", "--dir", site, "--renew")
    assert f"securedfl certs install a.crt --dir {site}" in told
    assert pair(site) == old
    assert stat.S_IMODE((site / "a.next.key").stat().st_mode) == 0o600
    waiting = (site / "a.next.key").read_bytes()
    # the request may be on its way already, and is for that key
    run("request", "a", "--host", "a.example.org", "--dir", site, "--renew")
    assert (site / "a.next.key").read_bytes() == waiting
    assert "certs install a.crt --dir KEYS" in run("sign", site / "a.csr", "--dir", authority, "--renew")
    assert pair(site) == old
    told = run("install", authority / "a.crt", "--dir", site)
    assert pair(site) == keys.describe(authority / "a.crt").fingerprint != old
    assert stat.S_IMODE((site / "a.key").stat().st_mode) == 0o600
    assert f"securedfl roster renew PEER.toml --certificate {site / 'a.crt'}" in told
    assert not (site / "a.next.key").exists()
    # once more does no harm
    run("install", authority / "a.crt", "--dir", site)


def test_where_the_authority_has_the_same_folder_signing_leaves_the_pair_in_use(authority):
    run("issue", "a", "--dir", authority)
    old = pair(authority)
    run("request", "a", "--dir", authority, "--renew")
    told = run("sign", authority / "a.csr", "--dir", authority, "--renew")
    assert f"securedfl certs install {authority / 'a.next.crt'} --dir {authority}" in told
    assert pair(authority) == old
    run("install", authority / "a.next.crt", "--dir", authority)
    assert pair(authority) != old
    assert not list(authority.glob("a.next.*"))


@pytest.mark.parametrize("place", ["a.crt", "a.key", "a.next.key"])
def test_an_installation_that_is_cut_short_is_completed_by_the_same_command(authority, site, monkeypatch, place):
    """Before the certificate or the key is written, or before what waited is removed."""
    run("request", "a", "--dir", site, "--renew")
    run("sign", site / "a.csr", "--dir", authority, "--renew")
    write, unlink = requests.write_bytes, Path.unlink

    def stopping(path, *arguments, **options):
        if path.name == place:
            raise KeyboardInterrupt
        return (write if arguments else unlink)(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(requests, "write_bytes", stopping)
        patched.setattr(Path, "unlink", lambda path, **options: stopping(path, **options))
        with pytest.raises(KeyboardInterrupt):
            requests.install(site, authority / "a.crt")
    if place == "a.key":
        with pytest.raises(ConfigError, match=rf"does: securedfl certs install {site / 'a.crt'} --dir {site}"):
            pair(site)
    run("install", authority / "a.crt", "--dir", site)
    assert pair(site) == keys.describe(authority / "a.crt").fingerprint
    assert not (site / "a.next.key").exists()


def test_what_would_break_a_pair_is_not_installed(authority, site, tmp_path):
    old = pair(site)
    run("issue", "a", "--dir", authority, "--renew")
    with pytest.raises(ConfigError, match=r"no key in .* belongs to .*a\.crt \(neither a\.next\.key nor a\.key\)"):
        run("install", authority / "a.crt", "--dir", site)
    run("request", "a", "--dir", site, "--renew")
    run("init", "--dir", tmp_path / "other")
    run("sign", site / "a.csr", "--dir", tmp_path / "other")
    with pytest.raises(ConfigError, match="was not issued by the authority"):
        run("install", tmp_path / "other" / "a.crt", "--dir", site)
    assert pair(site) == old
    with pytest.raises(ConfigError, match=r"At a site: securedfl certs request"):
        run("issue", "a", "--dir", site, "--renew")


def test_hosts_and_days_that_no_certificate_can_have(authority, tmp_path):
    for host in ("", "bad host", "a..b", "x" * 300, "-a.org"):
        with pytest.raises(ConfigError, match="is no host"):
            run("issue", "e", "--dir", authority, "--host", host)
    for command in (("issue", "g", "--dir", authority), ("init", "--dir", tmp_path / "new")):
        with pytest.raises(ConfigError, match="too long; use 36500 at most"):
            run(*command, "--days", 99999999)
    assert not (tmp_path / "new").exists()
    run("issue", "f", "--dir", authority, "--host", "é.org", "--host", "::1", "--host", "a_b.example.org")
    assert keys.describe(authority / "f.crt").hosts == ("f", "xn--9ca.org", "::1", "a_b.example.org")


def test_requests_that_are_not_signed(authority, tmp_path):
    with pytest.raises(ConfigError, match="cannot be a peer's name"):
        run("request", "../up", "--dir", tmp_path)
    (tmp_path / "x.csr").write_text("no request")
    with pytest.raises(ConfigError, match="not a request"):
        run("sign", tmp_path / "x.csr", "--dir", authority)
    with pytest.raises(ConfigError, match="cannot read"):
        run("sign", tmp_path / "none.csr", "--dir", authority)
    run("request", "a", "--dir", tmp_path)
    with pytest.raises(ConfigError, match="--renew"):
        run("request", "a", "--dir", tmp_path)
    with pytest.raises(ConfigError, match="holds no authority"):
        run("sign", tmp_path / "a.csr", "--dir", tmp_path / "nowhere")


@pytest.mark.parametrize("command", [("init",), ("request", "a")])
def test_a_folder_that_cannot_be_made_is_told(tmp_path, command):
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match="cannot write"):
        run(*command, "--dir", tmp_path / "file" / "keys")


@pytest.mark.parametrize("command", [("init",), ("request", "a")])
def test_a_folder_of_keys_is_closed_when_it_is_made_and_left_as_it_is_else(tmp_path, command):
    run(*command, "--dir", tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    (tmp_path / "there").mkdir(mode=0o755)
    run(*command, "--dir", tmp_path / "there")
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o755


def test_show_gives_whole_fingerprints_on_narrow_terminals_and_as_json(authority):
    run("issue", "hospital-a", "--host", "127.0.0.1", "--dir", authority)
    fingerprint = keys.describe(authority / "hospital-a.crt").fingerprint
    assert fingerprint in run("show", "--dir", authority)
    rows = json.loads(run("show", "--dir", authority, "--json"))
    assert [row["name"] for row in rows] == ["SecureD-FL federation authority", "hospital-a"]
    assert rows[1]["fingerprint"] == fingerprint
    assert rows[1]["hosts"] == ["hospital-a", "127.0.0.1"]
    assert rows[1]["warning"] == ""


def test_a_relay_starts_says_where_it_listens_and_stops_on_sigterm(authority):
    run("issue", "relay-a", "--dir", authority)
    files = ["--key", "relay-a.key", "--certificate", "relay-a.crt", "--authority", "ca.crt"]
    program = "from securedfl.cli import main; main()"
    command = [sys.executable, "-c", program, "relay", "--listen", "127.0.0.1:0", *files]
    with subprocess.Popen(command, cwd=authority, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            port = int(line.split("127.0.0.1:")[1].split(",")[0])
            assert keys.describe(authority / "relay-a.crt").fingerprint in line
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
            told = [process.stdout.readline() for _ in range(7)]
            (entry,) = tomllib.loads("".join(told[told.index("[[relays]]\n") :]))["relays"]
            assert (entry["name"], entry["address"]) == ("relay-a", f"HOST:{port}")
            assert entry["fingerprint"] in line
            process.send_signal(signal.SIGTERM)
            assert "0 bytes were passed on" in process.communicate(timeout=20)[0]
            assert process.returncode == 0
        finally:
            process.kill()
