"""Differential privacy of whole runs: bad settings, epsilon everywhere it must stand, seeds, stops, and a canary."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import securedfl
from securedfl.errors import ConfigError, PrivacyError
from securedfl.federation.budget.planning import check_privacy, make_plan
from securedfl.federation.budget.protection import protect
from securedfl.federation.budget.task import SiteChance
from securedfl.federation.config import TrainConfig
from securedfl.federation.gate import save_account
from securedfl.federation.methods import averaging_of, bringing, choose_design
from securedfl.federation.peers.config import FederationConfig
from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.train import resume
from securedfl.learning.models.flat import FlatModel
from securedfl.learning.training.clipping import ClippedGradients
from securedfl.privacy.budget.plan import Plan, settled
from securedfl.privacy.budget.words import pair
from securedfl.privacy.ledger import Tried
from securedfl.protocols import InsecureSeededDraw
from securedfl.reporting.report import write_report

SITE = {"unit": "site", "clip": 0.5, "delta": 1e-3, "epsilon": 30.0}
RECORD = {"unit": "record", "clip": 1.0, "delta": 1e-4, "noise_multiplier": 1.0, "sampling": 0.2}
SGD = {"optimizer": "sgd", "learning_rate": 1.0}


def train(tmp_path, privacy, **options):
    given = {"model": "linear", "rounds": 3, "methods": "secured", "workers": 1, "out": tmp_path / "run", **options}
    return securedfl.train(privacy=privacy, **given)


@pytest.mark.parametrize(
    ("privacy", "settings", "text"),
    [
        ({**SITE, "clip": 0.0}, {}, "clip = 0.0 .* greater than 0"),
        ({**SITE, "clip": -1}, {}, "clip = -1 .* greater than 0"),
        ({**SITE, "delta": 0.2}, {}, "delta = 0.2 is not below 1/9"),
        ({**SITE, "delta": 1.5}, {}, "delta = 1.5 .* less than 1"),
        ({**RECORD, "records": 9999}, SGD, "delta = 0.0001 is not below 1/9999|delta"),
        ({"unit": "site"}, {}, "clip in .* must be given"),
        ({**SITE, "unit": "person"}, {}, "unit = 'person'"),
        ({**SITE, "epsilom": 1}, {}, "did you mean 'epsilon'"),
        ({"unit": "site", "clip": 1.0, "delta": 1e-3}, {}, "epsilon or noise_multiplier"),
        ({**SITE, "sampling": 0.5}, {}, "sampling is for unit"),
        (SITE, {"peers_per_round": 3}, "leave peers_per_round away"),
        (RECORD, {**SGD, "steps": 2}, "set steps"),
        (RECORD, {**SGD, "proximal": 0.1}, "without proximal"),
        (RECORD, {**SGD, "warmup": 2}, "set warmup"),
        (RECORD, {**SGD, "entry": "app:make"}, "an app trains by itself"),
        (SITE, {"weighted": True}, "weighted = false"),
        (SITE, {"differences": False}, "differences = true"),
        (SITE, {"range": 1.0}, "leave range away"),
        (SITE, {"integers": "average"}, 'integers = "own"'),
        ({**RECORD, "sampling": None}, SGD, "Poisson"),
        (RECORD, {**SGD, "batch_size": 64}, "not Poisson batches"),
        (RECORD, {}, "set optimizer = 'sgd'"),
        (RECORD, {**SGD, "momentum": 0.5}, "set momentum"),
        (RECORD, {**SGD, "epochs": 2}, "set epochs"),
        (RECORD, {**SGD, "local": "head.*"}, "leave local away"),
    ],
)
def test_bad_settings_are_refused_before_any_data_is_touched(privacy, settings, text):
    values = {key: value for key, value in privacy.items() if value is not None}
    if "records" in values:
        values["delta"] = 1 / 9999
    with pytest.raises(ConfigError, match=text):
        check_privacy(TrainConfig.resolve({"privacy": values, "methods": "secured", **settings}))


def test_real_peers_need_to_agree_on_records_and_trust_no_server():
    with pytest.raises(ConfigError, match="agree on records"):
        check_privacy(TrainConfig.resolve({"privacy": RECORD, **SGD}), real=True)
    with pytest.raises(ConfigError, match="needs a server"):
        check_privacy(TrainConfig.resolve({"privacy": {**SITE, "noise": "central"}}), real=True)


@pytest.mark.parametrize(
    ("privacy", "options", "error", "text"),
    [
        ({**RECORD, "delta": 0.01}, SGD, ConfigError, "not below 1/1617"),
        ({**RECORD, "epsilon": 0.1}, SGD, PrivacyError, "the first round alone"),
        ({**RECORD, "epsilon": 4.0}, {**SGD, "rounds": 50}, PrivacyError, "these would fit: rounds = "),
        (SITE, {"methods": "paper"}, PrivacyError, "choose grouped, shares or resilient"),
        (SITE, {"protocol": "grouped", "iterations": 3}, PrivacyError, "only the total"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_the_start(tmp_path, privacy, options, error, text):
    with pytest.raises(error, match=text):
        train(tmp_path, privacy, **options)
    assert not (tmp_path / "run").exists()


def test_epsilon_stands_everywhere(tmp_path):
    summary = train(tmp_path, SITE, methods="fedavg,secured")
    folder = tmp_path / "run"
    epsilon = summary.methods["secured"].epsilon
    assert 29 < epsilon <= 30
    assert summary.methods["fedavg"].epsilon is None
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    spent = [row["epsilon"] for row in rows if row["method"] == "secured"]
    assert spent == sorted(spent)
    assert spent[0] == 0
    assert spent[-1] == epsilon
    assert not any("epsilon" in row for row in rows if row["method"] == "fedavg")
    with (folder / "metrics.csv").open() as file:
        assert [float(row["epsilon"]) for row in csv.DictReader(file) if row["method"] == "secured"] == spent
    ledger = json.loads((folder / "ledger.json").read_text())["differential_privacy"]
    assert list(ledger["epsilon_by_round"].values()) == spent
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["sentence"].startswith(
        "Any 1 of 9 peers learns only the total, and that total is (30, 0.001)-differentially private for each site as "
        "a whole at the end of the run (so far (30, 0.001))."
    )
    assert "protects nobody here" in certificate["remark"]
    page = write_report(folder).read_text()
    assert "Epsilon beside accuracy" in page
    assert "differentially private for each site" in page
    told = json.loads((tmp_path / "run" / "certificate.json").read_text())
    card = (tmp_path / "run" / "README.md").read_text()
    assert told["sentence"] in card
    assert "protects nobody here" in card


@pytest.mark.parametrize("noise", ["distributed", "local", "central"])
def test_records_by_every_kind_of_noise(tmp_path, noise):
    steps = {"steps": 2} if noise == "local" else {}
    summary = train(tmp_path, {**RECORD, "noise": noise}, methods="fedavg,secured", **SGD, **steps)
    found = summary.certificate["differential_privacy"]
    assert found["noise"] == noise
    assert found["steps_per_round"] == (2 if noise == "local" else 1)
    assert found["units"] == 1617
    assert summary.methods["secured"].epsilon == pytest.approx(found["epsilon_at_the_end"])
    # what FedAvg trains is as ever
    assert summary.methods["fedavg"].epsilon is None
    assert summary.methods["fedavg"].best_accuracy > 0.5
    assert np.isfinite(summary.methods["secured"].final_loss)


def test_the_same_seed_gives_the_same_noise_and_a_stopped_run_goes_on(tmp_path):
    first = train(tmp_path / "a", RECORD, **SGD)
    again = train(tmp_path / "b", RECORD, **SGD)
    assert first.methods["secured"].final_loss == again.methods["secured"].final_loss
    other = train(tmp_path / "c", RECORD, seed=1, **SGD)
    assert first.methods["secured"].final_loss != other.methods["secured"].final_loss
    secret = [train(tmp_path / f"secret{k}", RECORD, masks="secret", **SGD) for k in range(2)]
    assert secret[0].methods["secured"].final_loss != secret[1].methods["secured"].final_loss
    assert resume(tmp_path / "a" / "run").methods["secured"].final_loss == first.methods["secured"].final_loss


def test_a_run_stops_when_its_budget_is_spent(tmp_path):
    summary = train(tmp_path, {**RECORD, "epsilon": 3.5, "over": "stop"}, rounds=50, **SGD)
    assert summary.finished
    assert 0 < summary.methods["secured"].rounds < 50
    assert summary.methods["secured"].epsilon <= 3.5
    assert resume(tmp_path / "run").methods["secured"].rounds == summary.methods["secured"].rounds


def test_a_run_is_not_extended_because_its_noise_was_settled_for_its_rounds(tmp_path):
    train(tmp_path, {**SITE, "over": "stop"}, peers=5, protocol="shares", rounds=2)
    with pytest.raises(ConfigError, match="cannot be extended"):
        resume(tmp_path / "run", changes={"rounds": 20})
    assert resume(tmp_path / "run", changes={"rounds": 2}).finished


def test_real_peers_cannot_change_for_how_many_rounds_noise_was_settled():
    def made(rounds, **train):
        peers = [{"name": f"p{k}", "address": f"h:{k + 1}", "fingerprint": f"{k:064x}"} for k in range(4)]
        return FederationConfig.resolve({"peers": peers, "train": {"rounds": rounds, "protocol": "shares", **train}})

    assert made(2).hash == made(20).hash
    assert made(2, privacy=SITE).hash != made(20, privacy=SITE).hash


def noisy_sites(multiplier, rounds):
    """Return settings, design and plan of nine sites with so much noise."""
    wish = {"unit": "site", "clip": 1.0, "delta": 1e-3, "noise_multiplier": multiplier}
    config = TrainConfig.resolve({"peers": 9, "protocol": "shares", "rounds": rounds, "privacy": wish})
    design = choose_design(config)
    plan = make_plan(config, averaging_of(config, "secured", design), size=100, dtype="float32", records=None)
    return config, design, plan


def test_the_sentence_tells_of_the_rounds_that_an_operator_asked_for(tmp_path):
    """Without a budget nothing stops a longer run, so what it spends at its end is what must be said."""
    config, design, plan = noisy_sites(3.0, rounds=5)
    rows = [Row(method="secured", round=round) for round in range(4)]

    def promised(rounds, rows=rows, roster=None):
        longer = config.model_copy(update={"rounds": rounds})
        save_account(tmp_path, longer, design, rows, plans={"secured": plan}, roster=roster)
        return json.loads((tmp_path / "certificate.json").read_text())["differential_privacy"]

    assert promised(5)["epsilon_at_the_end"] == plan.planned
    told = promised(20)
    assert (told["epsilon"], told["epsilon_at_the_end"]) == (plan.epsilon({9: 3}), plan.epsilon({9: 20}))
    end, now = (pair(plan.epsilon({9: rounds}), 1e-3) for rounds in (20, 3))
    assert f"{end}-differentially private" in told["sentence"]
    assert f"if everybody takes part until then (so far {now})" in told["sentence"]
    # who was missing is missing in the noise, too
    fewer = [*rows[:3], Row(method="secured", round=3, tried=(Tried(0, 0, tuple(range(7)), True),))]
    assert promised(20, fewer)["epsilon_at_the_end"] == plan.epsilon({9: 19, 7: 1}) > told["epsilon_at_the_end"]
    # so is who has left; noise of those that came is not counted on
    assert promised(20, roster=8)["epsilon_at_the_end"] == plan.epsilon({9: 3, 8: 17}) > told["epsilon_at_the_end"]
    assert promised(20, roster=12)["epsilon_at_the_end"] == told["epsilon_at_the_end"]
    done = promised(3)
    assert done["epsilon_at_the_end"] == done["epsilon"]
    assert "everybody" not in done["sentence"]


def test_tables_are_refused_for_records_because_all_rows_scale_them(tmp_path):
    (tmp_path / "rows.csv").write_text("a,label\n" + "1,x\n2,y\n" * 20)
    config = TrainConfig.resolve({"dataset": str(tmp_path), "privacy": RECORD, **SGD})
    with pytest.raises(ConfigError, match="one record moves all others"):
        check_privacy(config)


def test_settings_are_compared_by_peers():
    """Whoever has another [privacy] is another federation: the hash and the words that peers compare differ."""
    from securedfl.federation.peers.config import FederationConfig

    def made(**changes):
        peers = [{"name": f"p{k}", "address": f"127.0.0.1:{7000 + k}", "fingerprint": f"{k:064x}"} for k in range(5)]
        return FederationConfig.resolve({"peers": peers, "train": {"privacy": {**SITE, **changes}}})

    first = made()
    assert first.told["train.privacy"] != made(clip=0.6).told["train.privacy"]
    hashes = {made(**change).hash for change in ({}, {"clip": 0.6}, {"delta": 2e-3}, {"epsilon": 31.0})}
    assert len(hashes) == 4


class Canary:
    """A little federation of three sites that trains a linear model with and without one strange record."""

    def __init__(self, multiplier: float) -> None:
        torch.set_num_threads(1)  # two threads that wait for each other on a busy machine take for ever
        torch.manual_seed(0)
        self.model = FlatModel(nn.Sequential(nn.Linear(20, 4)))
        self.x, self.y = torch.randn(60, 20), torch.randint(4, (60,))
        self.strange = (3.0 * torch.randn(1, 20), torch.tensor([2]))
        self.plan = settled(
            Plan(
                unit="record",
                noise="distributed",
                clip=1.0,
                noise_multiplier=multiplier,
                sampling=0.8,
                delta=1e-3,
                peers=3,
                collusion=1,
                rounds=4,
                size=self.model.schema.size,
                units=60,
                scale=0.05,
            ),
            epsilon=None,
            capacity=2**30 - 1,
        )
        self.clipped = ClippedGradients(self.model, lambda s, t: nn.functional.cross_entropy(s, t, reduction="none"))

    def score(self, trial: int, member: bool) -> float:
        """Return how well the trained model knows the strange record: minus its loss."""
        chance = SiteChance(self.plan, seed=trial)
        with torch.no_grad():
            self.model.trained.zero_()
        for round in range(1, self.plan.rounds + 1):
            total = np.zeros(self.model.schema.size)
            for site in range(3):
                x, y = self.x[site::3], self.y[site::3]
                if member and site == 0:
                    x, y = torch.cat([x, self.strange[0]]), torch.cat([y, self.strange[1]])
                chosen = torch.from_numpy(chance.batch(len(x), site, round, 0))
                self.clipped.add(x[chosen], y[chosen], self.plan.clip)
                step = -self.plan.scale * self.model.gradient.numpy()
                keys = InsecureSeededDraw(trial, peer=100 + site, round=round).seed
                total += protect(step.astype(np.float32), self.plan, keys)[0]
            with torch.no_grad():
                self.model.trained += torch.from_numpy(total.astype(np.float32))
        with torch.no_grad():
            return -float(nn.functional.cross_entropy(self.model.module(self.strange[0]), self.strange[1]))

    def advantage(self, trials: int) -> float:
        """Return how often a record that was in it scores higher than one that was not: 1/2 is a coin."""
        inside = np.array([self.score(trial, True) for trial in range(trials)])
        outside = np.array([self.score(1000 + trial, False) for trial in range(trials)])
        return float((inside[:, None] > outside).mean())


def test_a_canary_is_found_without_noise_and_not_with_it():
    """Membership inference on the common model: next to certain without noise, next to a coin at epsilon near 1."""
    without, private = Canary(0.01), Canary(7.0)
    assert private.plan.planned < 1.2
    assert without.advantage(25) > 0.9
    assert abs(private.advantage(25) - 0.5) < 0.2


def test_noise_that_would_be_rounded_away_is_refused():
    """Numbers travel in steps; noise on a finer grid would not be in the total for which it was counted."""
    wish = {"unit": "record", "clip": 1e-3, "delta": 1e-5, "epsilon": 4.0, "sampling": 0.4}
    values = {"peers": 9, "rounds": 20, "methods": ("secured",), "protocol": "shares", "optimizer": "sgd", "bits": 16}

    for rate in (1.0, 1e-4, 1e-6):
        config = TrainConfig.resolve({**values, "learning_rate": rate, "privacy": wish})
        design = choose_design(config)
        plan = make_plan(config, averaging_of(config, "secured", design), size=2000, dtype="float32", records=1617)
        fine = bringing(config, "secured", design, "float32", plan)(1).step
        assert fine <= plan.grid
        with pytest.raises(ConfigError, match=r"coarser than those of the noise.*use more bits"):
            bringing(config, "secured", design, "float32", replace(plan, grid=fine / 2))


def test_a_number_without_a_bound_is_json(tmp_path):
    config, design, plan = noisy_sites(0.8, rounds=40)
    rows = [Row(method="secured", round=round) for round in range(200)]
    save_account(tmp_path, config, design, rows, plans={"secured": plan})
    text = (tmp_path / "ledger.json").read_text()
    assert "Infinity" not in text
    assert json.loads(text)["differential_privacy"]["epsilon_by_round"]["199"] is None
