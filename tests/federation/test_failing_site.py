"""A real peer whose training or scoring fails: with differential privacy that stays at home, else it is an error."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from securedfl.errors import InvalidInputError
from securedfl.federation.bringing import Brought
from securedfl.federation.budget.protection import whole_steps
from securedfl.federation.peers.events import Failed
from securedfl.federation.peers.membership import Membership
from securedfl.federation.peers.run import RealPeer
from securedfl.federation.peers.update import StoredUpdate, find_update, save_update
from securedfl.learning.training.common_optimizer import NO_OPTIMIZER
from securedfl.learning.training.task import PeerSamples
from tests.federation.test_protection import RECORD, SITE, keys

MODEL = np.full(300, 0.25, dtype=np.float32)


class Learner:
    """Its optimiser's state is spoilt by a step that fails."""

    samples = PeerSamples(5)

    def __init__(self, trained):
        self._trained, self._state = trained, {"moment": 1.0}

    def update(self, vector, round):
        self._state = {"moment": float("nan")}
        if isinstance(self._trained, Exception):
            raise self._trained
        return vector * self._trained, 0.5

    def evaluate(self, vector):
        raise ValueError("a test sample")

    def state(self):
        return self._state

    def restore(self, state):
        self._state = state


def peer(tmp_path, plan, learner, told):
    """A peer before round 1, whose noise is left away."""

    class WithoutNoise:
        def __call__(self, w, base, **_options):
            return Brought(whole_steps(w if plan.brings_steps else w - base, plan, keys(0))[0] if plan else w)

        def check(self, vector):
            """Anything can travel."""

    save_update(tmp_path, StoredUpdate(0, MODEL, {"moment": 1.0}))
    state = SimpleNamespace(round=1, roster=(), bound=(), phase="idle")
    running = SimpleNamespace(begin=lambda: None, progress=SimpleNamespace(state=state, todo=None), model=lambda: MODEL)
    training = SimpleNamespace(weighted=False, differences=True)
    federation = SimpleNamespace(max_weight=None, training=training, check_weight=lambda _name, _weight: None)
    site = SimpleNamespace(config=SimpleNamespace(out=tmp_path, name="p0"), plan=plan, me=0, federation=federation)
    return RealPeer(Membership(site, running, lambda _round: WithoutNoise(), NO_OPTIMIZER), learner, told.append)


@pytest.mark.parametrize("plan", [SITE, RECORD], ids=["site", "record"])
@pytest.mark.parametrize("trained", [np.float32("nan"), np.float32("inf"), InvalidInputError("it diverged")], ids=repr)
def test_what_fails_in_training_brings_nothing_and_leaves_no_trace_in_the_optimiser(tmp_path, plan, trained):
    told, learner = [], Learner(trained)
    site = peer(tmp_path, plan, learner, told)
    assert site.update(1) == ()
    assert not find_update(tmp_path).vector.any()
    assert learner.state() == {"moment": 1.0}
    (failed,) = (event for event in told if isinstance(event, Failed))
    assert failed.reason.startswith("training in round 1 failed at this site: InvalidInputError: ")
    assert site.evaluate() == ()
    assert "a test sample" in told[-1].reason


def test_without_differential_privacy_it_is_an_error(tmp_path):
    site = peer(tmp_path, None, Learner(InvalidInputError("it diverged")), [])
    with pytest.raises(InvalidInputError, match="it diverged"):
        site.update(1)
    with pytest.raises(ValueError, match="a test sample"):
        site.evaluate()
