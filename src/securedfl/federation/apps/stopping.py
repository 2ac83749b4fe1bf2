"""Being asked to stop, by Ctrl-C or a signal: so that it is told from what an app or a library raises by itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_asked = threading.Event()


@contextmanager
def heeding_signals() -> Iterator[None]:
    """Stop at Ctrl-C, SIGTERM and SIGHUP (a terminal that was closed), all as a `KeyboardInterrupt`.

    What whoever started this process has chosen to ignore, as nohup does, stays ignored.
    """
    _asked.clear()
    # not every system has all of them
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        _asked.clear()


def means_stop(error: BaseException) -> bool:
    """Tell whether what an app raised means that this process shall stop; else it is an error of the app.

    Who was asked to stop does so, whatever a library makes of it. Where signals are not heeded here, any
    `KeyboardInterrupt` counts.
    """
    heeded = signal.getsignal(signal.SIGTERM) is _stop
    return _asked.is_set() or (isinstance(error, KeyboardInterrupt) and not heeded)


def _stop(_number: int, _frame: FrameType | None) -> None:
    _asked.set()
    raise KeyboardInterrupt
