"""An app that ends by itself, with `sys.exit` for instance, is an error; one that was asked to stop is none."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import numpy as np
import pytest

from securedfl.errors import AppError
from securedfl.federation.apps.app import App, EntryPoint
from securedfl.federation.apps.failures import Where
from securedfl.federation.apps.stopping import heed_signals
from securedfl.federation.apps.trainer import AppTrainer, size_of

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HERE = Where("app:make", "site-a")


@pytest.fixture
def heeding():
    before = [signal.getsignal(number) for number in SIGNALS]
    heed_signals()
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


def leave(*_arguments):
    sys.exit()


@pytest.mark.parametrize(
    "raised", [SystemExit(), SystemExit(0), asyncio.CancelledError(), GeneratorExit(), OSError(28)]
)
def test_whatever_a_function_raises_is_told_with_its_name(raised):
    text = f"update of app:make failed at site-a in round 2: {type(raised).__name__}"
    with pytest.raises(AppError, match=text), HERE.told("update", 2):
        raise raised


class Leaving:
    """Leaves where nobody asked for anything but its size."""

    def __len__(self):
        sys.exit()

    def state_dict(self):
        sys.exit()


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("make", lambda: EntryPoint("app:make", ".", lambda _settings: leave()).make({"name": "site-a"}, 1)),
        ("model", lambda: AppTrainer().take(0, App(model=Leaving(), data=[1], update=leave), HERE)),
        ("data", lambda: size_of(App(model={}, data=Leaving(), update=leave), HERE)),
        ("update", lambda: trainer().update(0, 1, np.zeros(1))),
        ("evaluate", lambda: trainer().evaluate(0, np.zeros(1))),
        ("evaluate_common", lambda: trainer().evaluate_common(0, np.zeros(1))),
    ],
)
def test_every_function_of_an_app_is_named_that_leaves(function, call):
    with pytest.raises(AppError, match=f"^{function} of app:make failed at site-a"):
        call()


def trainer():
    found = AppTrainer()
    app = App(model={"w": np.zeros(1)}, data=[1], update=leave, evaluate=leave, evaluate_common=leave)
    found.take(0, app, HERE)
    return found


def test_a_library_that_raises_keyboardinterrupt_is_told_from_ctrl_c(heeding):
    with pytest.raises(AppError, match="KeyboardInterrupt"), HERE.told("update"):
        raise KeyboardInterrupt


def test_where_nobody_heeds_signals_it_is_ctrl_c():
    with pytest.raises(KeyboardInterrupt), HERE.told("update"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("made", [None, SystemExit(1), RuntimeError("the loader has stopped")], ids=repr)
def test_who_was_asked_to_stop_stops_whatever_the_app_makes_of_it(heeding, number, made):
    def update():
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        except KeyboardInterrupt:
            if made is None:
                raise
            raise made from None

    with pytest.raises(KeyboardInterrupt), HERE.told("update"):
        update()


def test_what_is_ignored_stays_ignored(heeding):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    heed_signals()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
