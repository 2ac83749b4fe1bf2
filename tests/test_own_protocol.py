"""A protocol of the user's own, given as one object, works wherever a name does; or announced by a package."""

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import securedfl
from securedfl.cli import app
from securedfl.errors import ConfigError, PrivacyError
from securedfl.protocols import Settled, by_name
from securedfl.reporting.report import write_report
from securedfl.simulation import Crash, run
from tests.privacy.audits import enforce

PEERS = 5


def circle(me, w, design, *, round, draw, factor=512.0):
    """Pass a masked sum around a circle that begins at peer 0, who alone knows the mask: two neighbours can cheat."""
    n, mask = design.n, factor * draw(w)
    passing = w + mask if me == 0 else w
    for step in range(n):
        received = yield {(me + 1) % n: passing} if step == me else {}
        if step == me - 1:
            passing = received[step] + w
    total = received[n - 1] - mask if me == 0 else None
    received = yield dict.fromkeys(range(1, n), total) if me == 0 else {}
    return (total if me == 0 else received[0]) / n


def settle(_design, options):
    """Say how wide the mask is, because the gate refuses masks that an update can be recognised behind."""
    return Settled(options=options, widths=(options.get("factor", 512.0),))


CIRCLE = securedfl.Protocol(name="circle", label="A circle", generator=circle, in_groups=False, settle=settle)


def test_average_and_certificate():
    vectors = [np.full(3, float(k)) for k in range(PEERS)]
    np.testing.assert_allclose(securedfl.average(vectors, protocol=CIRCLE), 2.0, atol=1e-9)
    np.testing.assert_allclose(securedfl.average(vectors, protocol=CIRCLE, factor=2.0), 2.0, atol=1e-9)
    with pytest.raises(ConfigError, match="did you mean 'factor'"):
        securedfl.average(vectors, protocol=CIRCLE, facto=2.0)
    alone = securedfl.certify(PEERS, protocol=CIRCLE)
    assert (alone.protocol, alone.verdict, alone.method, alone.exhaustive) == (
        "circle", "only the total", "symbols", True,
    )  # fmt: skip
    pair = securedfl.certify(PEERS, protocol=CIRCLE, collusion=2)
    assert pair.verdict == "exposed"
    assert "do not protect" in pair.sentence


def test_training_and_report(tmp_path):
    folder = tmp_path / "run"
    settings = {"peers": PEERS, "model": "linear", "rounds": 2, "methods": "fedavg,secured"}
    summary = securedfl.train(**settings, protocol=CIRCLE, out=folder)
    same, ours = (summary.methods[name].final_accuracy for name in ("fedavg", "secured"))
    assert abs(same - ours) < 0.01
    assert json.loads((folder / "certificate.json").read_text())["protocol"] == "circle"
    assert 'protocol = "circle"' in (folder / "config.toml").read_text()
    page = write_report(folder).read_text()
    assert "circle" in page
    assert CliRunner().invoke(app, ["audit", "--run", str(folder)]).exit_code == 0
    with pytest.raises(PrivacyError, match="These would do: shares of strength 4 in groups of 2"):
        securedfl.train(**settings, protocol=CIRCLE, collusion=2, out=tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_it_needs_all_peers_unless_it_says_otherwise():
    averaging = CIRCLE.on(securedfl.Design.everyone(PEERS))
    with pytest.raises(securedfl.PeerLostError, match="nobody keeps a result"):
        run(averaging, [np.zeros(3)] * PEERS, faults=[Crash(peer=2, step=0)])


def test_a_package_can_announce_one(tmp_path, monkeypatch):
    (tmp_path / "circles.py").write_text(
        "import securedfl\n"
        "def none(me, w, design, *, round, draw):\n"
        "    received = yield {u: w for u in range(design.n) if u != me}\n"
        "    return sum(received.values(), w) / design.n\n"
        "row = securedfl.Protocol(name='open', generator=none, masks='none', in_groups=False)\n"
        "wrong = 3\n"
    )
    about = tmp_path / "circles-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: circles\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[securedfl.protocols]\nopen = circles:row\nwrong = circles:wrong\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert by_name("open").masks == "none"
    assert securedfl.average([np.zeros(1), np.ones(1)], protocol="open") == 0.5
    with pytest.raises(ConfigError, match="is no protocol, but a int"):
        by_name("wrong")
    with pytest.raises(ConfigError, match="did you mean 'open'"):
        by_name("opne")
    sys.modules.pop("circles", None)


def test_what_follows_from_options_is_settled_once():
    def settle(design, options):
        if options.get("factor", 1.0) <= 0:
            raise ConfigError("factor must be positive")
        return Settled(options=options, widths=(options.get("factor", 1.0),))

    bounded = securedfl.Protocol(name="circle", generator=circle, in_groups=False, settle=settle)
    with pytest.raises(ConfigError, match="factor must be positive"):
        securedfl.certify(PEERS, protocol=bounded, factor=0.0)
    assert securedfl.certify(PEERS, protocol=bounded, factor=8.0).width == 8.0
    with pytest.raises(PrivacyError, match=r"only 0\.01 wide"):
        enforce(bounded.on(securedfl.Design.everyone(PEERS), factor=0.01))
