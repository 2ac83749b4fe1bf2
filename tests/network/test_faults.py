"""The table of faults: a fault costs time, never correctness.

All survivors hold the same model, or wait and say for whom.
"""

from __future__ import annotations

import json
import random
import resource
import signal

import numpy as np
import pytest

from securedfl.federation.run_folder.reader import read_run
from tests.network.peer_processes import ends, last_line
from tests.network.test_peers import check_equal

CRASHES = ["before sharing", "half-way through sending", "shared", "committed", "finished", "staged"]


def shares(federation, n=4, **settings):
    return federation(n, **{"protocol": "shares", "group_size": 2, "rounds": 3, **settings})


@pytest.mark.parametrize("place", ["half-way through sending", "committed"])
def test_crash_for_good_with_shares(federation, place):
    """Peer 1 is killed in round 2; the other three go on and hold the same model."""
    made = shares(federation)
    processes = made.start_all({1: (place, 2)})
    assert processes[1].end() == -signal.SIGKILL
    survivors = [process for k, process in enumerate(processes) if k != 1]
    assert ends(survivors) == [0] * 3, [process.errors for process in survivors]
    assert survivors[0].wait_for(event="staying")["peers"] == ["p1"]
    check_equal(made, [0, 2, 3])
    assert made.rows(0)[-1]["members"] == ["p0", "p2", "p3"]
    assert [row["void"] for row in made.rows(0)] == [False, False, place == "committed", False]


def test_an_app_that_calls_sys_exit_ends_its_peer_with_an_error(federation):
    """Not with exit code 0, as if all were done; the others are told, and go on."""
    made = shares(federation, data={1: {"leaving_round": 2}})
    processes = made.start_all()
    assert processes[1].end() == 13
    assert "update of toy:make failed at p1 in round 2: SystemExit" in processes[1].errors
    survivors = [process for k, process in enumerate(processes) if k != 1]
    assert ends(survivors) == [0] * 3, [process.errors for process in survivors]
    check_equal(made, [0, 2, 3])


def test_whoever_is_done_may_leave_before_a_lost_peer_is_back(federation):
    """Ctrl-C or SIGTERM while nothing is left to do is no failure."""
    made = shares(federation, deadlines={"absent": 600})
    processes = made.start_all({1: ("half-way through sending", 2)})
    assert processes[1].end() == -signal.SIGKILL
    for k in (0, 2, 3):
        assert processes[k].wait_for(event="staying")["peers"] == ["p1"]
    for k in (0, 2, 3):
        processes[k].popen.send_signal(signal.SIGTERM)
        assert processes[k].end() == 0, processes[k].errors
    check_equal(made, [0, 2, 3])


def test_a_lost_peer_takes_its_block_along(federation):
    """Seven peers, one colluder: two more stay out with the lost one, so that no two totals tell one peer's update."""
    made = shares(federation, n=7, rounds=3)
    processes = made.start_all({6: ("half-way through sending", 2)})
    assert processes[6].end() == -signal.SIGKILL
    assert ends(processes[:6]) == [0] * 6, [process.errors for process in processes[:6]]
    check_equal(made, range(6))
    members = [row["members"] for row in made.rows(0)]
    assert [len(row) for row in members] == [7, 7, 4, 4]
    assert members[2] == members[3]
    ledger = json.loads((made.folder / "out-p0" / "ledger.json").read_text())
    assert len(ledger["smallest_sum_over_rounds"]) >= 2
    certificate = json.loads((made.folder / "out-p0" / "certificate.json").read_text())
    assert "blocks of at least 3" in certificate["sentence"]


def test_crash_and_return_at_every_place_with_shares(federation):
    """A peer is killed at another place in every round, and started again at once; all end with the same model."""
    made = shares(federation, n=5, rounds=len(CRASHES), deadlines={"absent": 90})
    faults = {k: (place, k + 1) for k, place in enumerate(CRASHES[:5])}
    processes = made.start_all(faults)
    for k in faults:
        assert processes[k].end() == -signal.SIGKILL, processes[k].errors
        # peer 0, started again, is the one that dies at the last place
        processes[k] = made.start(k, *((CRASHES[5], 6, "again") if k == 0 else faults[k]))
    assert processes[0].end() == -signal.SIGKILL
    processes[0] = made.start(0)
    assert ends(processes) == [0] * 5, [process.errors for process in processes]
    check_equal(made)
    assert not any(row["void"] for row in made.rows(4))


def test_crash_and_return_with_grouped(federation):
    """Nobody can be left out, so the others wait, and all try again with fresh masks."""
    made = federation(4, protocol="grouped", group_size=2, allow_exposure=True, rounds=2, deadlines={"absent": 120})
    processes = made.start_all({1: ("half-way through sending", 1)})
    assert processes[1].end() == -signal.SIGKILL
    processes[1] = made.start(1)
    assert ends(processes) == [0] * 4, [process.errors for process in processes]
    check_equal(made)
    assert processes[1].wait_for(event="resumed")["round"] == 0
    assert made.rows(0)[1]["attempts"] == 2


def test_grouped_waits_for_a_lost_peer_and_goes_on_when_it_returns(federation):
    """No deadline ends the run: the others say whom they wait for, for as long as it takes."""
    # the last round is longer than a heartbeat, at which peers look who is there
    data = {0: {"slow_round": 3, "slow_seconds": 2}}
    made = federation(4, protocol="grouped", group_size=2, allow_exposure=True, data=data)
    processes = made.start_all({1: ("half-way through sending", 2)})
    assert processes[1].end() == -signal.SIGKILL
    for k in (0, 2, 3):
        processes[k].wait_for(event="waiting", missing=["p1"])
        processes[k].wait_for(event="lost", peers=["p1"])
    processes[1] = made.start(1)
    processes[0].wait_for(event="back", peers=["p1"])
    assert ends(processes) == [0] * 4, [process.errors for process in processes]
    check_equal(made)
    assert [row["void"] for row in made.rows(0)] == [False] * 4


def test_a_polite_absence(federation):
    """SIGTERM, as at a reboot: the others of `grouped` wait, and the run goes on with the peer's next start."""
    made = federation(3, protocol="grouped", allow_exposure=True, data={1: {"slow_round": 2, "slow_seconds": 6}})
    processes = made.start_all()
    processes[1].wait_for(event="phase", phase="training", round=2)
    processes[1].popen.send_signal(signal.SIGTERM)
    assert processes[1].end() == 130
    processes[0].wait_for(event="waiting", missing=["p1"])
    processes[1] = made.start(1)
    assert ends(processes) == [0] * 3, [process.errors for process in processes]
    check_equal(made)


def test_a_lost_disk(federation):
    """A peer that comes back with an empty folder is admitted again, and gets log and model from the others."""
    made = shares(federation, n=5, rounds=6, data={4: {"slow_round": 4, "slow_seconds": 6}})
    processes = made.start_all()
    processes[1].wait_for(event="round", round=2)
    processes[1].kill()
    (made.folder / "out-p1").rename(made.folder / "gone")
    processes[1] = made.start(1)
    assert ends(processes) == [0] * 5, [process.errors for process in processes]
    check_equal(made)
    assert "is admitted with a new state folder" in (made.folder / "out-p0" / "peer.log").read_text()


def test_kill_at_random_moments(federation):
    """Peers are killed and started again while the others go on; at the end all models are equal."""
    made = shares(federation, rounds=6, deadlines={"absent": 120})
    chance = random.Random(3)
    processes = made.start_all()
    for round in (1, 3, 5):
        victim = chance.randrange(4)
        processes[victim].wait_for(event="phase", phase=chance.choice(["training", "averaging"]), round=round)
        processes[victim].kill()
        processes[victim] = made.start(victim)
        # not that it goes on: the others may have done all rounds before it is there
        processes[victim].wait_for(event="certificate")
    assert ends(processes) == [0] * 4, [process.errors for process in processes]
    check_equal(made)


def test_a_peer_with_nan_leaves_and_says_so(federation):
    made = shares(federation, data={3: {"nan_round": 2}})
    processes = made.start_all()
    codes = ends(processes)
    assert codes == [0, 0, 0, 3], [process.errors for process in processes]
    assert "p3 are not finite" in last_line(processes[3])
    check_equal(made, [0, 1, 2])


def test_a_slow_peer_is_waited_for_until_the_deadline(federation):
    """Peer 3 takes longer than allowed in round 1; the others go on, and it comes back with their model."""
    made = shares(federation, data={3: {"slow_round": 1, "slow_seconds": 12}}, deadlines={"train": 5, "absent": 30})
    processes = made.start_all()
    assert ends(processes) == [0] * 4, [process.errors for process in processes]
    check_equal(made)
    assert made.rows(0)[1]["members"] == ["p0", "p1", "p2"]


@pytest.mark.parametrize(
    "damage", [b"\xff\xfe\n", b'{"round": 1}\n', b"[" * 100_000 + b"\n"], ids=["text", "keys", "deep"]
)
def test_damaged_rows_are_put_aside_and_keep_no_peer_from_its_part(federation, damage):
    """They are mere statistics; what the ledger says comes from the log."""
    made = shares(federation, rounds=4, data={3: {"slow_round": 3, "slow_seconds": 6}})
    out = made.folder / "out-p0"
    processes = made.start_all()
    processes[0].wait_for(event="round", round=1)
    processes[0].kill()
    (out / "metrics.jsonl.damaged").write_text("of another time")
    whole = (out / "metrics.jsonl").read_bytes()
    (out / "metrics.jsonl").write_bytes(damage + whole)
    processes[0] = made.start(0)
    assert ends(processes) == [0] * 4, [process.errors for process in processes]
    assert "metrics.jsonl.damaged-2" in processes[0].wait_for(event="ignored")["reason"]
    assert (out / "peer.log").read_text().count("metrics.jsonl.damaged") == 1
    assert (out / "metrics.jsonl.damaged-2").read_bytes() == damage + whole
    assert (out / "metrics.jsonl.damaged").read_text() == "of another time"
    assert made.rows(0)[-1]["round"] == 4
    ledgers = [json.loads((made.folder / f"out-p{k}" / "ledger.json").read_text()) for k in (0, 2)]
    assert ledgers[0] == ledgers[1]
    assert ledgers[0]["averages"] == 5
    assert [row.round for row in read_run(out).methods[0].rounds] == [row["round"] for row in made.rows(0)]


def test_lost_certificates_are_told_with_what_to_do(federation):
    """The log is on disk and whole, but nothing there proves it."""
    made = shares(federation, n=3, rounds=1)
    assert ends(made.start_all()) == [0] * 3
    for path in (made.folder / "out-p0" / "state" / "certificates").glob("*.der"):
        path.unlink()
    again = made.start(0)
    assert again.end() == 8
    assert "the certificates beside it, are damaged; move the folder `state`" in last_line(again)


def test_full_disk_at_checkpoint(federation):
    """The peer that cannot keep a result leaves with a clear error; the others go on."""
    made = shares(federation, data={k: {"size": 100_000} for k in range(4)})
    limit = 300_000  # bytes per file: enough for logs and journal, not for the model
    processes = [made.start(k) for k in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        processes.append(made.start(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ends(processes) == [0, 0, 0, 8], [process.errors for process in processes]
    assert "cannot write" in last_line(processes[3])
    assert "free some space" in last_line(processes[3])
    check_equal(made, range(3))


def test_full_disk_when_the_result_is_there(federation):
    """The disk of one peer fills up between its update and the result: the others have it and go on."""
    made = shares(federation, data={k: {"size": 100_000} for k in range(4)})
    processes = made.start_all({3: ("disk full", 2)})
    assert ends(processes) == [0, 0, 0, 8], [process.errors for process in processes]
    assert "cannot write" in last_line(processes[3])
    assert "results" in last_line(processes[3])
    check_equal(made, range(3))
    assert not any(row["void"] for row in made.rows(0))


def test_one_holder_is_enough(federation):
    """Peer 1 tells the result to peer 0 only and dies: the others take it from there instead of losing the round."""
    made = shares(federation)
    processes = made.start_all({1: ("tells only p0", 2)})
    assert processes[1].end() == -signal.SIGKILL, processes[1].errors
    survivors = [process for k, process in enumerate(processes) if k != 1]
    assert ends(survivors) == [0] * 3, [process.errors for process in survivors]
    check_equal(made, [0, 2, 3])
    rows = made.rows(2)
    assert [row["void"] for row in rows] == [False] * 4
    assert rows[2]["members"] == made.names
    assert "took the result from p0" in (made.folder / "out-p2" / "peer.log").read_text()


def test_retries_are_in_the_ledger(federation):
    """Which members an average was tried with, and what was opened, stands in every peer's ledger.json."""
    made = shares(federation, deadlines={"absent": 120})
    processes = made.start_all({1: ("committed", 1), 2: ("shared", 2)})
    for k in (1, 2):
        assert processes[k].end() == -signal.SIGKILL, processes[k].errors
        processes[k] = made.start(k)
    assert ends(processes) == [0] * 4, [process.errors for process in processes]
    check_equal(made)
    ledger = json.loads((made.folder / "out-p0" / "ledger.json").read_text())
    irregular = {entry["parameters"]: entry["attempts"] for entry in ledger["irregular_averages"]}
    # round 1: committed, abandoned, and opened again for the very same members
    assert irregular[1] == [{"members": "all", "opened": True}] * 2
    # round 2: given up before the commit, so nothing was opened; then one sum, of those that were left or of all
    assert [attempt["opened"] for attempt in irregular[2]].count(True) == 1
    assert ledger["retries_with_the_same_parameters"] >= 2
    assert ledger["exposed_so_far"] == []
    assert (made.folder / "out-p0" / "certificate.json").exists()


def test_the_same_parameters_after_a_restart(federation):
    """A peer whose training is never twice the same must not bring other parameters to a retry, nor train again."""
    made = shares(federation, deadlines={"absent": 120}, data={1: {"random": True}})
    processes = made.start_all({1: ("committed", 2)})
    assert processes[1].end() == -signal.SIGKILL
    with np.load(made.folder / "out-p1" / "update.npz") as file:
        brought = file["vector"]
    processes[1] = made.start(1, "brings", 2)
    assert ends(processes) == [0] * 4, [process.errors for process in processes]
    np.testing.assert_array_equal(np.load(made.folder / "brought.npy"), brought)
    check_equal(made)
