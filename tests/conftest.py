"""What every test needs, whoever starts the run."""

import signal
import threading

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    # a run in the background of a script inherits an ignored Ctrl-C, and would hand it on to the processes under test
    signal.signal(signal.SIGINT, signal.default_int_handler)
