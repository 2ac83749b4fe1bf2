"""What a real peer trains, made of an app at hand."""

from securedfl.federation.apps.trainer import AppTrainer
from securedfl.federation.peers.learner import Learner
from securedfl.learning.training.task import PeerSamples


def learner_of(app, local=()):
    trainer = AppTrainer(local=local)
    trainer.take(0, app)
    return Learner(trainer=trainer, me=0, train=trainer.update, samples=PeerSamples(app.size), common=app.common)
