"""The command line: thin commands over the package. This module is light, so that Ctrl-C is heard while others load."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from securedfl.federation.apps.stopping import heed_signals

INTERRUPTED = 130

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EPIPE, errno.EIO)


def main() -> None:
    """Run the command line; the console script ``securedfl``."""
    # a run folder stays usable, workers end, a peer says goodbye to the others
    heed_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without a character shows "?" for it
    try:
        try:
            from securedfl.cli.commands import app

            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        raise SystemExit(INTERRUPTED) from None
    except PermissionError as error:
        if error.filename is None:
            raise
        from securedfl.errors import RunFolderError

        sys.stderr.write(f"error: {error.filename}: {error.strerror}; choose another place, or mend its rights\n")
        raise SystemExit(RunFolderError.exit_code) from None
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left to print at exit goes nowhere
        if error.errno != errno.EPIPE:
            sys.stderr.write(f"error: cannot write {error.filename or 'the output'}: {error.strerror}\n")
        raise SystemExit(1) from None


def __getattr__(name: str) -> Any:
    if name == "app":  # for tests and scripts; loads all commands
        from securedfl.cli.commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
