"""What this site would train, opened once before the run, in a process of its own that ends when it takes too long.

A mistake in an app, or a wrong path of data, is found here, and not when all other sites wait. The process imports the
app, makes it with this site's data and scores the model as it is; it trains nothing and sends nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from securedfl.errors import RunFolderError, SecuredFLError
from securedfl.federation.checking.room import check_room
from securedfl.federation.checking.standing import own_log
from securedfl.federation.peers.begun import naming_changes
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.site import Site
from securedfl.network.journal import check_run

SUBJECT = "app and data"

WITHIN = 60.0
"""Seconds that it may take."""


@dataclass(frozen=True)
class Examined:
    """What was looked at before a run, whether it is fine, and what was found.

    ``lost`` says that nothing is wrong but that somebody cannot be reached, who may come yet; if it is fine all the
    same, it is a warning. ``folder`` says that what is wrong is in the site's own folder, and not in its settings.
    """

    subject: str
    ok: bool
    text: str
    lost: bool = False
    folder: bool = False


@contextmanager
def opening(path: Path, federation: FederationConfig, within: float) -> Iterator[Callable[[], Examined]]:
    """Open it from now on, for so many seconds at most; give what waits for the answer. The process ends with this.

    Parameters
    ----------
    path, federation
        Of ``peer.toml``, and its federation.
    within
        Seconds that it may take.
    """
    what = federation.entry or str(federation.train.get("dataset", ""))
    if not what:
        text = "federation.toml names neither entry nor dataset: a loop of your own joins (securedfl.join), and "
        why = federation.no_part(PeerConfig.load(path).name)
        text += f"`securedfl peer` cannot start here: {why}" if why else "`securedfl peer` would train digits"
        yield lambda: Examined(SUBJECT, True, text, lost=bool(why))
        return
    deadline = time.monotonic() + within
    # a group of its own, so that what an app starts ends with it
    process = subprocess.Popen(  # noqa: S603 - our own interpreter, on a file that the user named
        [sys.executable, "-m", __name__, str(path.resolve())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def answer() -> Examined:
        try:
            lines, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            # bytes even where text was asked for
            said = error.output or b""
            late = (
                f"it took longer than {within:g} s on this machine; give it more time with --open-within, or let it do "
                "less before the first round"
            )
            return judged(what, said if isinstance(said, str) else said.decode(), late)
        code = process.returncode
        return judged(what, lines, f"the process that opened it ended with exit code {code} and without a word")

    try:
        yield answer
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # a process that an app took out of the group may hold the other end for as long as it likes
        if process.stdout is not None:
            process.stdout.close()
        process.wait()


def judged(what: str, lines: str, otherwise: str) -> Examined:
    """Return what the lines of the process say; if the last one is no answer, what it did then and what happened."""
    told = [json.loads(line) for line in lines.splitlines()]
    if told and "ok" in told[-1]:
        return Examined(SUBJECT, told[-1]["ok"], told[-1]["text"], folder=told[-1].get("folder", False))
    doing = told[-1]["doing"] if told else "starting Python"
    return Examined(SUBJECT, False, f"{what}, {doing}: {otherwise}")


def look(path: Path, tell: TextIO) -> None:
    """Open what a site trains, and tell about it line by line, as JSON."""

    def say(**words: object) -> None:
        tell.write(json.dumps(words) + "\n")
        tell.flush()

    try:
        say(doing="importing")
        from securedfl.federation.peers.learner import make_learner

        config = PeerConfig.load(path)
        federation = FederationConfig.load(config.federation)
        say(doing="making it and opening the data")
        learner = make_learner(federation, config, path.parent)
        site = Site(config, federation, ()).chosen_by(learner.common, learner.coding)
        if (log := own_log(config, federation)) is not None:
            with naming_changes(config.out, site.federation.training):
                check_run(config.state, log.run, site.genesis(learner.trainer.schema).run)
        schema = learner.trainer.schema
        check_room(config.state, schema.size * np.dtype(schema.dtype).itemsize)
        say(doing="scoring the model as it is")
        score = learner.evaluate(learner.initial())
    except SecuredFLError as error:
        say(ok=False, text=str(error), folder=isinstance(error, RunFolderError))
        return
    tested = "no score"
    if score is not None:
        tested = f"{score.correct:,} of {score.count:,} test samples right before training"
    what, parameters = federation.entry or federation.training.dataset, learner.trainer.schema.size
    say(
        ok=True,
        text=f"{what}: {learner.samples.train:,} training samples, {parameters:,} parameters to average, {tested}; "
        "its update was not tried",
    )


if __name__ == "__main__":
    # what an app prints is no answer
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        look(Path(sys.argv[1]), answers)
