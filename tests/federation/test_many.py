"""Very many peers: rows for the members only, averages by partial sums, and a run of a thousand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.cli.progress import _scored
from securedfl.designs import best
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import check_settings, members, passes_messages
from securedfl.federation.run_folder.live import Live
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.simulated.peers import rows_needed
from securedfl.federation.task import make_task
from securedfl.federation.train import resume, train
from securedfl.learning.data.datasets import load
from securedfl.learning.data.dealing import deal
from securedfl.learning.training.processes import ProcessTeam
from securedfl.learning.training.team import InProcessTeam
from securedfl.privacy.audit import Audit
from securedfl.privacy.ledger import Attempt, Ledger
from securedfl.protocols import by_name
from securedfl.protocols.field import PrimeWords
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.reporting.live.page import page
from securedfl.reporting.live.snapshot import Content, snapshot
from securedfl.reporting.report import write_report
from securedfl.simulation import partial_sums
from securedfl.simulation.driver import run
from securedfl.simulation.partial_sums import CodeSums, DifferentAverageError, add_up, sum_of_codes
from tests.federation.tiny_runs import StopAfter, numbers

MANY = {
    "peers": 120,
    "peers_per_round": 12,
    "held_back": 0.2,
    "model": "linear",
    "optimizer": "adam",
    "learning_rate": 0.01,
    "methods": "fedavg,secured",
    "rounds": 4,
    "workers": 1,
}


def config_of(**changes):
    return TrainConfig.resolve({**MANY, **changes})


# what a peer may have


def test_with_a_common_test_set_a_peer_needs_one_sample_only():
    digits = load("digits")
    dealt = deal(digits, 1000, own_tests=False)
    assert {len(own.train) + len(own.test) for own in dealt} == {1, 2}
    assert sorted(np.concatenate([np.concatenate([own.train, own.test]) for own in dealt])) == list(range(1797))
    assert min(len(own.train) for own in dealt) == 1
    with pytest.raises(InvalidInputError, match=r"at most 179 peers, or hold back test data .*held_back = 0\.1"):
        deal(digits, 1000)
    with pytest.raises(
        InvalidInputError, match=r"2000 peers need at least 2000 samples \(one each\).*at most 1797 peers"
    ):
        deal(digits, 2000, own_tests=False)


# rows for the members only


def test_rows_are_for_the_members_where_nobody_needs_its_own():
    assert rows_needed(config_of()) == 12
    assert rows_needed(config_of(methods="local,fedavg")) is None
    assert rows_needed(config_of(between_rounds="keep")) is None
    assert rows_needed(config_of(peers_per_round=120)) is None


def test_a_team_with_few_rows_gives_the_numbers_of_one_with_a_row_for_each(tmp_path):
    train(config_of(out=str(tmp_path / "few")))
    # another method first, which needs all rows
    train(config_of(methods="local,fedavg,secured", out=str(tmp_path / "all")))
    few = numbers(tmp_path / "few")
    assert few == [row for row in numbers(tmp_path / "all") if row.method != "local"]
    assert few[-1].common_loss < few[0].common_loss
    with pytest.raises(KeyboardInterrupt):
        train(config_of(out=str(tmp_path / "part")), observer=StopAfter("secured", 2))
    resume(tmp_path / "part")
    assert numbers(tmp_path / "part") == few


def test_processes_seat_members_as_one_process_does():
    job = make_task(config_of(initial="own"))
    with InProcessTeam(job, 3) as one, ProcessTeam(job, 2, 3) as two:
        for team in (one, two):
            team.seat((5, 70, 119))
            team.initialise()
            team.seat((0, 5, 60))
            team.parameters[:] = team.parameters[1]
        losses = [team.update(1, only=(0, 5, 60)) for team in (one, two)]
        assert losses[0] == losses[1]
        assert np.array_equal(one.parameters, two.parameters)
        assert not np.array_equal(one.parameters[0], one.parameters[2])
        assert all(not state for state in one.states())


def test_a_drawn_peer_forgets_by_default_and_keeps_if_asked(tmp_path):
    assert config_of().between_rounds == "forget"
    assert TrainConfig.resolve({}).between_rounds == "keep"
    found = []
    for choice in ("forget", "keep"):
        out = tmp_path / choice
        train(config_of(peers=12, peers_per_round=6, rounds=5, between_rounds=choice, methods="fedavg", out=str(out)))
        found.append([row.common_loss for row in read_rows(out, Row)])
    # the first time that a peer trains there is nothing to keep
    assert found[0][:2] == found[1][:2]
    assert found[0][-1] != found[1][-1]


def test_apps_and_real_peers_decide_for_themselves_what_they_keep():
    with pytest.raises(ConfigError, match="an app decides for itself what it keeps"):
        TrainConfig.resolve({"entry": "app:make", "between_rounds": "forget"})
    assert TrainConfig.resolve({"entry": "app:make", "peers": 12, "peers_per_round": 6}).between_rounds == "keep"


# averages by partial sums


@settings(deadline=None, max_examples=20)
@given(
    protocol=st.sampled_from(["grouped", "shares", "resilient"]),
    n=st.sampled_from([9, 15, 31]),
    bits=st.sampled_from([16, 32, 64]),
    kind=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 10**6),
)
def test_codes_added_up_in_any_parts_give_the_bits_that_the_messages_give(protocol, n, bits, kind, seed):
    random = np.random.default_rng(seed)
    averaging = by_name(protocol).on(best(n, 3), bits=bits).at(seed % 7)
    vectors = [random.uniform(-0.2, 0.2, 23).astype(kind) for _ in range(n)]
    added = add_up(averaging, vectors)
    assert added.tobytes() == run(averaging, vectors).average.tobytes()
    cut, sums = int(random.integers(1, n)), CodeSums.of(averaging, kind)
    parts = [sum_of_codes(sums, part) for part in (vectors[cut:], vectors[:cut])]
    total = PrimeWords(bits).add(*parts) if protocol == "grouped" else parts[0] + parts[1]
    assert total.tobytes() == sums.add(parts[0].copy(), parts[1]).tobytes()
    assert averaging.codec.decode(total, n, vectors[0]).tobytes() == added.tobytes()


def test_a_value_that_cannot_be_brought_is_told_with_its_peer():
    averaging = by_name("grouped").on(best(9, 3))
    vectors = [np.zeros(3, np.float32) for _ in range(9)]
    vectors[4][1] = 100
    with pytest.raises(UnencodableError, match="of peer 4 is beyond the range"):
        add_up(averaging, vectors)


@pytest.mark.parametrize("protocol", ["grouped", "shares"])
def test_messages_of_some_rounds_change_no_number_and_the_account_says_which(tmp_path, protocol):
    every = config_of(methods="secured", protocol=protocol, messages_every=1, out=str(tmp_path / "every"))
    some = config_of(methods="secured", protocol=protocol, messages_every=3, out=str(tmp_path / "some"))
    assert [passes_messages(some, round) for round in range(6)] == [True, True, False, False, True, False]
    train(every)
    with pytest.raises(KeyboardInterrupt):
        train(some, observer=StopAfter("secured", 2))
    resume(tmp_path / "some")
    whole, sampled = numbers(tmp_path / "every"), numbers(tmp_path / "some")
    assert [row.messages for row in sampled] == [True, True, False, False, True]
    assert [row.messages for row in whole] == [None] * 5
    fields = ("common_loss", "train_loss", "bytes_per_peer")
    assert [[getattr(row, name) for name in fields] for row in whole] == [
        [getattr(row, name) for name in fields] for row in sampled
    ]
    # how far the average is off is found where messages are passed
    errors = [row.error_mse for row in whole]
    assert [row.error_mse for row in sampled] == [errors[0], errors[1], None, None, errors[4]]
    ledger = json.loads((tmp_path / "some" / "ledger.json").read_text())
    assert ledger["rounds_with_messages"] == [0, 1, 4]
    assert "rounds_with_messages" not in json.loads((tmp_path / "every" / "ledger.json").read_text())
    certificate = json.loads((tmp_path / "some" / "certificate.json").read_text())
    assert "passes no messages" in certificate["remark"]
    assert "passes no messages" not in json.loads((tmp_path / "every" / "certificate.json").read_text())["remark"]


def test_the_certificate_of_a_protocol_that_passes_all_messages_does_not_say_otherwise(tmp_path):
    train(config_of(methods=("paper",), messages_every=3, rounds=1, out=str(tmp_path / "run")))
    assert "passes no messages" not in (tmp_path / "run" / "certificate.json").read_text()


def test_a_run_stops_when_messages_and_sums_differ(tmp_path, monkeypatch):
    right = partial_sums.sum_of_codes

    def wrong(sums, vectors):
        total = right(sums, vectors)
        total[7] += total.dtype.type(1 << 20)
        return total

    monkeypatch.setattr(partial_sums, "sum_of_codes", wrong)
    with pytest.raises(DifferentAverageError, match=r"another average in round 0 .* at 1 of 650 parameters"):
        train(config_of(methods="secured", messages_every=5, out=str(tmp_path / "run")))


def test_more_members_than_messages_can_be_passed_for_are_refused_at_once():
    config = config_of(peers=5000, peers_per_round=2500, methods="secured")
    with pytest.raises(ConfigError, match="Set peers_per_round to 2000 or fewer"):
        check_settings(config)
    check_settings(config_of(peers=5000, peers_per_round=2500, methods="fedavg"))
    check_settings(config_of(peers=5000, peers_per_round=2000, methods="secured"))


# what is told about many


@pytest.mark.parametrize(("protocol", "given"), [("shares", {"collusion": 2}), ("grouped", {}), ("classic", {})])
@pytest.mark.parametrize("drawn", [False, True])
def test_how_often_pairs_met_is_counted_without_a_square_of_all_peers(protocol, given, drawn):
    count, random = 12, np.random.default_rng(3)
    averaging = by_name(protocol).on(best(count, 3), **given)
    who = [tuple(sorted(random.choice(40, count, replace=False).tolist())) if drawn else None for _ in range(9)]
    attempts = [Attempt(round=round, members=members) for round, members in enumerate(who)]
    ledger = Ledger(Audit(averaging), peers=40 if drawn else None).add(*attempts)
    met = ledger.meetings[np.triu_indices(ledger.n, 1)]
    times, pairs = ledger._pairs()
    assert dict(zip(times.tolist(), pairs.tolist(), strict=True)) == dict(
        zip(*(found.tolist() for found in np.unique(met, return_counts=True)), strict=True)
    )


def test_a_peer_without_test_data_has_a_place_but_no_score(tmp_path):
    config = config_of(
        peers=300, peers_per_round=30, dealing="dirichlet", alpha=5.0, rounds=1, out=str(tmp_path / "run")
    )
    train(config)
    tests = [len(own.test) for own in make_task(config).dealt]
    row = read_rows(tmp_path / "run", Row)[-1]
    assert [bool(count) for count in tests] == np.isfinite(row.peer_accuracy).tolist()
    assert 0 < sum(map(bool, tests)) < 300
    card = (tmp_path / "run" / "README.md").read_text()
    assert "on test data that no peer holds" in card
    assert "Of 300 peers:" in card
    assert len(card) < 4000


def test_the_live_page_of_very_many_is_small_and_counts_members():
    some = Content(
        name="s", kind="simulation", peers=10_000, members=100, lives={"": Live(time=5, phase="", trained=7)}
    )
    html = page(snapshot(some, 5.0))
    assert "7 of 100" in html
    assert "10,000" in html
    assert len(html) < 20_000
    few = page(snapshot(Content(name="s", kind="simulation", peers=9), 5.0))
    assert few.count("<circle") == 9


def test_progress_tells_the_common_test_set_where_nobody_has_test_data_of_its_own():
    row = Row(method="secured", round=1, common_accuracy=0.25, common_loss=2.0)
    assert _scored(row) == (0.25, 2.0)
    assert _scored(replace(row, accuracy=0.5, loss=1.0)) == (0.5, 1.0)


# a thousand


def test_a_thousand_peers_train_within_the_memory_of_a_hundred(tmp_path):
    config = config_of(peers=1000, peers_per_round=100, rounds=2, methods="secured", out=str(tmp_path / "run"))
    summary = train(config)
    rows = read_rows(tmp_path / "run", Row)
    assert [row.tried[0].members for row in rows] == [members(config, round) for round in range(3)]
    assert [row.messages for row in rows] == [True, True, False]
    assert rows[-1].common_loss < rows[0].common_loss
    assert summary.methods["secured"].max_error < 1e-5
    assert summary.certificate["peers"] == 100
    write_report(tmp_path / "run")
    # nothing of it grows with the square of the peers, and the report is one that a browser opens at once
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Rounds whose messages were passed" in report
    assert "on the common test set" in report
    (tmp_path / "run" / "report.html").unlink()
    assert len(report) < 700_000
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert max(sizes.values()) < 200_000, sizes
