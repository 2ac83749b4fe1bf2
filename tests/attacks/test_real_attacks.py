"""Attacks that broke masks of bounded width, on messages that real averages sent: the same code learns nothing now.

Every attack is shown to succeed on the protocol ``paper``, whose masks are floats, and then to do no better than chance
on ``grouped`` and ``shares``. Masks come from seeds, so the numbers are the same in every run; where a limit allows
for chance, it is at least four standard deviations wide.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
import torch

from securedfl.attacks.intervals import narrow
from securedfl.designs import best
from securedfl.errors import PrivacyError
from securedfl.learning.data.datasets import SOURCES
from securedfl.learning.models.flat import FlatModel
from securedfl.learning.models.registry import build
from securedfl.learning.slices import PeerData
from securedfl.learning.training.task import TrainingOptions
from securedfl.learning.training.trainer import LocalTrainer
from securedfl.parameters import Schema
from securedfl.protocols import InsecureSeededDraw, by_name
from securedfl.weights import add_weights
from tests.attacks.curious import codec_of, matched_filter, on_grid, overhear, repeated, told_apart
from tests.privacy.audits import enforce

AFFINE = best(9, 3, 0)
PERFECT = ["grouped", "shares"]
PAPER_WIDTH = 16.0
"""Of the masks of ``paper``: 1/rho by default."""


def on(protocol, **options):
    return by_name(protocol).on(AFFINE, **({"strength": 2} if protocol == "shares" else {}), **options)


@contextmanager
def one_thread():
    """Let torch use one thread: with models as small as these, several wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def once_per_victim(heard):
    """Yield each neighbour's message once: to all its neighbours in a group it says the same, or other slices."""
    seen = set()
    for found in heard.values():
        for victim, reading in found.items():
            if victim not in seen:
                seen.add(victim)
                yield victim, reading


class TestCounters:
    """ResNet-18 with running averages counts the batches that it has seen, in each of its 20 layers alike.

    Who knows how many epochs have passed looks for a multiple of them, and learns how much data a neighbour has.
    """

    BATCHES = tuple(range(1, 65))
    EPOCHS = 10

    def model(self):
        return build("resnet18-running", (1, 9, 9), 10, 0.05)

    def accuracy(self, averaging, averages):
        state = {name: value.numpy() for name, value in self.model().state_dict().items()}
        counters = [name for name in state if name.endswith("num_batches_tracked")]
        assert len(counters) == 20
        schema = Schema.of(state, integers="average")
        where = np.concatenate([np.full(leaf.size, leaf.name in counters) for leaf in schema.leaves])
        random, right = np.random.default_rng(0), []
        for seed in range(averages):
            batches = random.choice(self.BATCHES, 9)
            counted = [state | dict.fromkeys(counters, np.array(b * self.EPOCHS)) for b in batches]
            heard = overhear(averaging, [schema.flatten(one) for one in counted], seed)
            for victim, seen in once_per_victim(heard):
                guess = repeated(seen[where], self.EPOCHS * np.array(self.BATCHES), PAPER_WIDTH, random)
                right.append(guess == batches[victim] * self.EPOCHS)
        return np.mean(right)

    def test_one_message_of_paper_tells_how_much_data_a_neighbour_has(self):
        assert self.accuracy(on("paper"), 5) == 1

    @pytest.mark.parametrize("protocol", PERFECT)
    def test_perfect_masks_hide_them(self, protocol):
        # 180 guesses, one of 64 right by chance
        assert self.accuracy(on(protocol, range=1024.0), 20) < 1 / 64 + 0.04

    def test_they_do_not_travel_by_default(self):
        module = self.model()
        for schema in (Schema.of(module.state_dict()), FlatModel(module).schema):
            names = [leaf.name for leaf in schema.leaves]
            assert names
            assert not [name for name in names if name.endswith("num_batches_tracked")]
            assert not any(leaf.integer for leaf in schema.leaves)
        assert any("running_mean" in name for name in names)


CHARACTERS, DIMENSIONS = 200, 64


@cache
def trained_embeddings():
    """Return the common embedding, those of nine peers after a step of training, and which characters each has read."""
    random, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    embeddings, read = [], []
    with one_thread(), torch.random.fork_rng():
        torch.manual_seed(0)
        model = build("gru", (20,), CHARACTERS, DIMENSIONS / 100)
        common = {name: value.clone() for name, value in model.state_dict().items()}
        for _ in range(9):
            model.load_state_dict(common)
            alphabet = torch.as_tensor(random.permutation(CHARACTERS)[: CHARACTERS // 2])
            text = alphabet[torch.randint(len(alphabet), (32, 20), generator=generator)]
            scores = model(text[:, :-1]).flatten(0, 1)
            torch.nn.functional.cross_entropy(scores, text[:, 1:].flatten()).backward()
            torch.optim.RMSprop(model.parameters(), lr=0.001).step()
            model.zero_grad()
            embeddings.append(model.embedding.weight.detach().numpy().ravel().copy())
            read.append(np.isin(np.arange(CHARACTERS), text[:, :-1]))
    return common["embedding.weight"].numpy().ravel(), embeddings, read


def brought(differences):
    """Return what is common, what each peer brings, and which characters each has read."""
    base, embeddings, read = trained_embeddings()
    if differences:
        return np.zeros_like(base), [embedding - base for embedding in embeddings], read
    return base, embeddings, read


@pytest.mark.parametrize("differences", [False, True])
class TestLowBits:
    """Characters that do not occur in a neighbour's text leave their rows of the embedding as they were.

    Masks of ``paper`` are multiples of 2^-20, and float32 keeps finer bits of a parameter below 8.
    """

    GRID = 2.0**-20

    def scores(self, averaging, base, vectors, grid, rounding):
        """Return how much of each row looks unchanged, by victim."""
        found = {}
        for victim, seen in once_per_victim(overhear(averaging, vectors)):
            matches = np.where(np.isnan(seen), np.nan, on_grid(seen, base, grid, rounding(seen)))
            rows = matches.reshape(CHARACTERS, DIMENSIONS)
            known = ~np.isnan(rows).all(axis=1)
            found[victim] = known, np.nanmean(rows[known], axis=1)
        return found

    def test_paper_tells_which_characters_a_neighbour_has_read(self, differences):
        base, vectors, read = brought(differences)
        # two roundings of half a unit each, one of them of a number that c < 1 makes smaller
        found = self.scores(
            on("paper"), base, vectors, self.GRID, lambda seen: 1.25 * np.abs(np.spacing(np.float32(seen)))
        )
        told = np.concatenate([(score == 1) == ~read[victim][known] for victim, (known, score) in found.items()])
        assert (told.size, told.mean()) == (9 * CHARACTERS, 1)

    @pytest.mark.parametrize("protocol", PERFECT)
    def test_perfect_masks_have_no_finer_bits(self, protocol, differences):
        base, vectors, read = brought(differences)
        averaging = on(protocol)
        step = codec_of(averaging).step(base, averaging.n)
        common = np.rint(base.astype(np.float64) / step) * step
        for bits in range(9):
            found = self.scores(averaging, common, vectors, step * 2**bits, lambda _seen: step / 4)
            score = np.concatenate([score for _, score in found.values()])
            unread = np.concatenate([~read[victim][known] for victim, (known, _) in found.items()])
            assert told_apart(score, unread) == pytest.approx(0.5, abs=0.1)


CLASSES = 10


@cache
def updates():
    """Return how mainly one class moves a common model: as an attacker guesses, and as it does at the victims."""
    digits, random = SOURCES["digits"].load(None, print), np.random.default_rng(0)

    def mainly(main, places):
        right = digits.y[places] == main
        chosen = np.concatenate([random.choice(places[right], 72), random.choice(places[~right], 8)])
        return PeerData(digits.x[chosen], digits.y[chosen], digits.x[:1], digits.y[:1])

    halves = np.array_split(random.permutation(len(digits.y)), 2)
    data = {i * CLASSES + k: mainly(k, half) for i, half in enumerate(halves) for k in range(CLASSES)}
    options = TrainingOptions(model="cnn-small", width=0.5, learning_rate=0.003)
    moved = []
    with one_thread():
        trainer = LocalTrainer(data, digits.shape, digits.classes, options)
        base = np.empty(trainer.model.schema.size, dtype=np.float32)
        trainer.initialise(0, base)
        for peer in data:
            row = base.copy()
            trainer.initialise(peer, np.empty_like(row))
            trainer.update(peer, 1, row)
            moved.append(row - base)
    return moved[:CLASSES], moved[CLASSES:]


class TestMatchedFilter:
    """Who guesses what training on mainly one class does to a model finds which class a neighbour mainly has."""

    AVERAGES = 50

    def accuracy(self, averaging):
        guessed, true = updates()
        random, right = np.random.default_rng(0), []
        for seed in range(self.AVERAGES):
            main = random.integers(0, CLASSES, 9)
            heard = overhear(averaging, [true[k] for k in main], seed)
            right += [matched_filter(seen, guessed) == main[peer] for peer, seen in once_per_victim(heard)]
        return np.mean(right)

    @pytest.mark.parametrize(("rho", "least"), [(4.0, 0.99), (1.0, 0.99), (1 / 4, 0.5), (1 / 16, 0.17)])
    def test_it_finds_classes_behind_narrow_masks(self, rho, least):
        assert self.accuracy(on("paper", rho=rho)) >= least

    @pytest.mark.parametrize("protocol", PERFECT)
    def test_it_finds_nothing_behind_perfect_masks(self, protocol):
        assert self.accuracy(on(protocol)) == pytest.approx(0.1, abs=0.06)

    @pytest.mark.parametrize("rho", [4.0, 1.0, 1 / 4, 1 / 16])
    def test_the_gate_refuses_what_it_tells(self, rho):
        with pytest.raises(PrivacyError, match=r"recognise it in a single message.*protocol = grouped"):
            enforce(on("paper", rho=rho))

    @pytest.mark.parametrize("protocol", PERFECT)
    def test_the_gate_lets_perfect_masks_pass(self, protocol):
        found = enforce(on(protocol))
        assert (found.kind, found.verdict) == ("perfect", "only the total")


class TestWeights:
    """How much data a peer has is its weight, and that stands still from round to round."""

    WEIGHTS = tuple(range(1, 9))
    ROUNDS = 600

    def vectors(self, weights):
        parameters = [np.zeros(4, dtype=np.float32)] * 9
        return add_weights(parameters, weights, max(self.WEIGHTS))

    def accuracy(self, protocol):
        """Return how often a peer finds the weight of one that it meets, after all rounds."""
        random = np.random.default_rng(0)
        weights = random.choice(self.WEIGHTS, 9)
        vectors, averaging = self.vectors(weights), on(protocol)
        # at the weight itself, not its finer part
        place, seen = len(vectors[0]) - 2, {}
        for round in range(self.ROUNDS):
            for attacker, found in overhear(averaging.at(round), vectors, seed=1).items():
                for victim, reading in found.items():
                    seen.setdefault((attacker, victim), []).append(reading[place])
        candidates = [vector[place] for vector in self.vectors([*self.WEIGHTS, 8])]
        right = []
        for (_, victim), numbers in seen.items():
            known = np.array(numbers)
            if not np.isnan(known).all():
                right.append(repeated(known, candidates, PAPER_WIDTH, random) == vectors[victim][place])
        assert len(right) >= 18
        return np.mean(right)

    def test_intervals_narrow_around_them_behind_bounded_masks(self):
        vectors = self.vectors([3] * 9)
        found = narrow(
            lambda _round: vectors,
            AFFINE,
            rounds=self.ROUNDS,
            rho=1 / PAPER_WIDTH,
            draw=lambda peer, round: InsecureSeededDraw(1, peer=peer, round=round),
        )
        assert found.widths[0] == pytest.approx(PAPER_WIDTH)
        assert found.widths[-1] < 0.2
        assert found.errors[-1] < 0.1

    def test_a_neighbour_knows_them_behind_bounded_masks(self):
        assert self.accuracy("paper") > 0.7

    @pytest.mark.parametrize("protocol", PERFECT)
    def test_nobody_knows_them_behind_perfect_masks(self, protocol):
        assert self.accuracy(protocol) < 1 / 8 + 0.32
