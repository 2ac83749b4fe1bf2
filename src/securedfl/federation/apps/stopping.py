"""Being asked to stop, by Ctrl-C or a signal: so that it is told from what an app or a library raises by itself."""

from __future__ import annotations

import signal
import threading
from types import FrameType

_asked = threading.Event()


def heed_signals() -> None:
    """From now on stop at Ctrl-C, SIGTERM and SIGHUP (a terminal that was closed), all as a `KeyboardInterrupt`.

    What whoever started this process has chosen to ignore, as nohup does, stays ignored.
    """
    _asked.clear()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        # not every system has all of them
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


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
