"""Differential privacy on real peers: noise is drawn once, the budget stops all alike, other settings are refused."""

from __future__ import annotations

import json
import signal
import threading

import numpy as np
import pytest

import securedfl
from securedfl.errors import ConfigError
from securedfl.federation.budget.rules import BudgetSpentError
from securedfl.federation.peers.config import PeerConfig
from securedfl.federation.peers.site import Site
from securedfl.network.core.entries import Remove
from securedfl.network.core.events import Command
from securedfl.parameters import Schema
from tests.network import toy
from tests.network.peer_processes import await_text, ends, in_threads
from tests.network.test_operator import command
from tests.network.test_peers import check_equal

PRIVACY = {"unit": "site", "clip": 1.0, "delta": 1e-3, "noise_multiplier": 2.0, "epsilon": 5.0, "over": "stop"}


def private(federation, **changes):
    return federation(
        4,
        protocol="shares",
        group_size=2,
        rounds=9,
        deadlines={"absent": 120},
        data={k: {"size": 60, "random": True} for k in range(4)},
        privacy={**PRIVACY, **changes},
    )


def test_a_crash_draws_no_new_noise_and_the_budget_stops_all_alike(federation):
    made = private(federation)
    site = Site.of(PeerConfig.load(made.folder / "p0.toml"))
    plan = site.planned(Schema.of(toy.make({"name": "p0", "size": 60})[0])).plan
    processes = made.start_all({1: ("committed", 2)})
    assert processes[1].end() == -signal.SIGKILL, processes[1].errors
    # also the folder of a peer that was killed says what was spent
    killed = json.loads((made.folder / "out-p1" / "certificate.json").read_text())["differential_privacy"]
    assert killed["epsilon"] == made.rows(1)[-1]["epsilon"] == plan.epsilon({4: 1})
    # sums of the round may have been seen: it is not cut off, to be begun again with other updates
    cut = command(made, "extend", "p0.toml", "--rounds", "1")
    assert (cut.returncode, "round 2 has begun" in cut.stderr) == (4, True), cut.stderr
    with np.load(made.folder / "out-p1" / "update.npz") as file:
        kept = file["vector"]
    # whole grid steps, with more in them than a clipped difference can be
    steps = kept / plan.grid
    assert (steps == np.rint(steps)).all()
    assert np.linalg.norm(steps) > 2 * plan.clip_steps
    processes[1] = made.start(1, "brings", 2)
    assert ends(processes) == [0] * 4, [process.errors for process in processes]
    np.testing.assert_array_equal(np.load(made.folder / "brought.npy"), kept)
    check_equal(made)

    # round 2 was opened twice by the same members with the same noise, which tells no more than once
    last = max(round for round in range(1, 10) if plan.epsilon({4: round}) <= 5.0)
    assert 2 <= last < 9
    for k, process in enumerate(processes):
        rows = made.rows(k)
        assert rows[-1]["round"] == last
        assert rows[-1]["epsilon"] == plan.epsilon({4: last})
        assert "budget of differential privacy is spent" in next(
            event["reason"] for event in process.events if event["event"] == "ended"
        )
        ledger = json.loads((made.folder / f"out-p{k}" / "ledger.json").read_text())["differential_privacy"]
        assert ledger["epsilon"] == plan.epsilon({4: last})
        assert len(ledger["epsilon_by_round"]) == last + 1
    sentence = processes[0].wait_for(event="certificate")["sentence"]
    assert sentence.startswith("Any 1 of 4 peers learns only the total, and that total is (5, 0.001)-differentially")
    told = json.loads((made.folder / "out-p0" / "certificate.json").read_text())["differential_privacy"]
    assert told["epsilon"] == plan.epsilon({4: last})


def test_a_site_whose_training_fails_brings_nothing_but_noise(federation):
    """That it is missing would tell the others about its data, so it is told at home only."""
    data = {k: {"size": 60, "random": True} for k in range(4)}
    data[1]["nan_round"], data[2]["failing_round"] = 1, 2
    made = federation(4, protocol="shares", group_size=2, rounds=3, data=data, privacy=PRIVACY)
    processes = made.start_all()
    assert ends(processes) == [0] * 4, [process.errors for process in processes]
    check_equal(made)
    for k, process in enumerate(processes):
        assert all(len(row["members"]) == 4 and row["attempts"] == 1 for row in made.rows(k))
        failed = [event["reason"] for event in process.events if event["event"] == "failed"]
        assert [text.partition(" failed")[0] for text in failed] == {
            1: ["training in round 1"],
            2: ["training in round 2"],
        }.get(k, [])
        log = (made.folder / f"out-p{k}" / "peer.log").read_text()
        assert ("not finite" in log, "this site's data" in log) == (k == 1, k == 2)
        losses = [row.get("train_loss") for row in made.rows(k)]
        assert [round for round, loss in enumerate(losses) if round and loss is None] == [k] * (k in (1, 2))
        # the sentence of every file that tells of epsilon is the same
        told = json.loads((made.folder / f"out-p{k}" / "certificate.json").read_text())["differential_privacy"]
        summary = json.loads((made.folder / f"out-p{k}" / "summary.json").read_text())
        assert summary["certificate"]["differential_privacy"] == told
        assert told["epsilon"] == made.rows(k)[-1]["epsilon"]


def test_a_peer_with_another_promise_is_refused(federation):
    made = private(federation)
    made.write("tampered.toml", train={**made.values["train"], "privacy": {**PRIVACY, "clip": 2.0}})
    made.write_peer(1, made.files[1], federation="tampered.toml")
    processes = [made.start(0), made.start(1)]
    told = await_text(made.folder / "out-p0" / "peer.log", "has other settings")
    assert "train.privacy is" in told
    for process in processes:
        process.kill()
    assert not (made.folder / "out-p0" / "metrics.jsonl").read_text()


def test_records_need_a_trainer_that_clips(federation):
    """An entry point trains by itself, so that nothing can be promised about records."""
    record = {"unit": "record", "clip": 1.0, "delta": 1e-4, "epsilon": 5.0, "sampling": 0.1, "records": 100}
    made = federation(4, protocol="shares", group_size=2, optimizer="sgd", privacy=record)
    process = made.start(0)
    assert process.end() == 4
    assert "trains by itself" in process.errors


def test_the_first_model_of_a_loop_of_ones_own_is_brought_before_training(federation):
    """It travels without noise; what was trained must not, whenever a loop averages."""
    made = private(federation)
    seen = []

    def work(k):
        model = {"w": np.zeros(60, dtype=np.float32)}
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            model["w"] += 300.0
            with pytest.raises(ConfigError, match="before training"):
                peer.average_(model)
            model["w"][:] = 0.0
            assert peer.resume_(model)
            assert (peer.round, peer.last.round) == (1, 0)
            model["w"] += 300.0
            peer.average_(model)
            seen.append(model["w"].copy())

    in_threads(work, 4)
    # each site's change of norm 2,300 was cut to 1, and has noise
    assert all(np.linalg.norm(w) < 50 for w in seen)


def test_who_waits_for_a_round_that_became_too_dear_ends_as_all_do(federation):
    """An operator lets a site leave for good, and its noise with it, while the others wait for its update."""
    made = private(federation, epsilon=1.75)
    plan = Site.of(PeerConfig.load(made.folder / "p0.toml")).planned(Schema.of({"w": np.zeros(60, np.float32)})).plan
    assert plan.epsilon({4: 1}) < 1.75 < plan.epsilon({3: 1})
    ended, wait = [], threading.Event()

    def work(k):
        model = {"w": np.zeros(60, dtype=np.float32)}
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            assert peer.resume_(model)
            if k == 3:
                wait.wait(60)
                return
            if k == 0:
                peer._seat._member.peer._shell.events.put(Command(Remove(3)))
            with pytest.raises(BudgetSpentError, match="a round of 3 peers"):
                peer.average_(model)
            ended.append(k)
            if len(ended) == 3:
                wait.set()

    in_threads(work, 4)
    assert sorted(ended) == [0, 1, 2]
