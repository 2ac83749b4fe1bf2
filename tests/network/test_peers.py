"""Real peers in real processes: the same result as the memory driver, and the same model on every peer."""

from __future__ import annotations

import json
import re
import stat

import numpy as np
import pytest
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.designs import best
from securedfl.federation.methods import FIRST
from securedfl.federation.run_folder.reader import read_run
from securedfl.protocols import InsecureSeededDraw, by_name
from securedfl.reporting.report import write_report
from securedfl.reporting.sections import data
from securedfl.simulation import run
from tests.network import toy


def check_equal(federation, peers=None):
    models = [federation.model(k) for k in (range(federation.n) if peers is None else peers)]
    for model in models[1:]:
        np.testing.assert_array_equal(model, models[0])
    return models[0]


@pytest.mark.parametrize(
    ("n", "protocol", "fault"),
    [
        (3, "grouped", "seeded"),
        (5, "shares", "seeded"),
        (5, "grouped", "duplicates"),
        (5, "shares", "reordered"),
    ],
)
def test_bit_for_bit_the_memory_drivers_result(federation, n, protocol, fault):
    """Also with every message sent twice, and with messages in another order."""
    made = federation(n, protocol=protocol, group_size=2 if protocol == "shares" else 3, allow_exposure=True)
    for process in made.start_all(dict.fromkeys(range(n), (fault,))):
        assert process.end() == 0, process.errors
    found = check_equal(made)

    def average(vectors, round):
        design = best(n, 2 if protocol == "shares" else 3, 0)
        return run(
            by_name(protocol).on(design, **({} if round else FIRST)).at(round),
            vectors,
            draws=lambda peer, offset: InsecureSeededDraw(5, peer=peer, round=round, offset=offset),
        ).average

    # the model's second array is float32, so that every round ends with a conversion, as in the peers
    np.testing.assert_array_equal(found, toy.replay(made.names, 3, average))
    assert [row["round"] for row in made.rows(0)] == [0, 1, 2, 3]
    assert made.rows(0)[-1]["members"] == made.names
    if fault == "reordered":
        # what a peer leaves can be reported and audited like any other run
        page = write_report(made.folder / "out-p0").read_text()
        assert "seen from p0" in page
        assert "5 peers have averaged 3 rounds" in page
        # an app has its own data and model, whatever the defaults of settings are
        facts = data.facts(read_run(made.folder / "out-p0"))
        assert facts == {"Data": "toy:make", "Samples": facts["Samples"], "Parameters": "1,003 that are averaged"}
        assert not re.search("digits|cnn-small|dealing =", page)
        shown = CliRunner().invoke(app, ["audit", "--run", str(made.folder / "out-p0")])
        assert shown.exit_code == 0
        assert "averages                           4" in shown.output
    log = (made.folder / "out-p0" / "peer.log").read_text()
    assert "given up" not in log, log
    assert {"time", "level", "logger", "text"} == json.loads(log.splitlines()[0]).keys()


@pytest.mark.parametrize(("protocol", "bits"), [("grouped", 16), ("resilient", 16), ("resilient", 32)])
def test_numbers_travel_in_as_many_bits_as_settings_say(federation, protocol, bits):
    """And nobody else on the machine can look into what a peer keeps."""
    size = 100_000
    made = federation(
        3,
        protocol=protocol,
        group_size=2,
        rounds=2,
        bits=bits,
        range=8.0,
        allow_exposure=True,
        data={k: {"size": size} for k in range(3)},
    )
    for process in made.start_all():
        assert process.end() == 0, process.errors
    # round 0, which averages the first parameters themselves, travels in 64 bits
    averaging = by_name(protocol).on(best(3, 2, 0), bits=bits, range=8.0)
    for k in range(3):
        rows = made.rows(k)
        for round in (1, 2):
            sent = run(averaging.at(round), [np.zeros(size + 3)] * 3).sent[k]
            assert rows[round]["bytes_out"] - rows[round - 1]["bytes_out"] == pytest.approx(sent, abs=30_000)
            assert sent * 8 >= size * bits
        out = made.folder / f"out-p{k}"
        assert stat.S_IMODE(out.stat().st_mode) == 0o700
        # nobody can want it again, and there is no optimiser to go on with
        assert not (out / "update.npz").exists()
