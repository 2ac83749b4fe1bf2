"""What goes wrong inside an app, told as its author needs it: which function, which peer, which line of theirs."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securedfl.errors import AppError, SecuredFLError
from securedfl.federation.apps.stopping import means_stop

OURS = Path(__file__).parents[2]
LIBRARIES = tuple(Path(path) for name, path in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib")))

MOST_FRAMES = 10
"""The last lines of the author's that are told; a recursion has very many."""


@dataclass(frozen=True)
class Where:
    """Whose app it is: where it comes from, the peer that it was made for, and the settings that it was made with."""

    entry: str = "the app"
    peer: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @contextmanager
    def told(self, function: str, round: int | None = None) -> Iterator[None]:
        """Turn what a function of the app raises into an `AppError`; our own errors already say what to do.

        That also goes for `sys.exit` and for whatever else is no `Exception`: a peer must not end as if all were done.
        """
        try:
            yield
        except SecuredFLError:
            raise
        except BaseException as error:
            if means_stop(error):
                raise KeyboardInterrupt from error
            at = f" at {self.peer}" if self.peer else ""
            at += f" in round {round}" if round else ""
            lines = "".join(f"\n{line}" for line in own_lines(error))
            mend = wrong_path(error, self.settings) or "Mend the app"
            raise AppError(
                f"{function} of {self.entry} failed{at}: {_in_words(error)}{lines}\n{mend}, then go on: train "
                "with --resume if the run had begun, or start the peer again"
            ) from error


def wrong_path(error: BaseException, settings: Mapping[str, Any]) -> str:
    """Return what to correct if a file or folder that the settings name cannot be opened; else nothing."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError):
        return ""
    # not every library says which file it was but in its text
    tried = [error.filename] if isinstance(error.filename, str) else re.findall(r"[^\s'\"]+", str(error))
    for key, value in settings.items():
        if isinstance(value, str) and any(_leads_to(value, path.rstrip(".,:;")) for path in tried if path):
            return (
                f"It is the path: {key} = {value!r}, from --data or [data], leads to {Path(value).absolute()}. "
                f"Correct {key}"
            )
    return ""


def _leads_to(value: str, path: str) -> bool:
    """Tell whether a path is the one of a setting, or lies in it."""
    return bool(value) and Path(path).absolute().is_relative_to(Path(value).expanduser().absolute())


def own_lines(error: BaseException) -> list[str]:
    """Return the lines of a traceback that are the author's: neither ours nor those of installed libraries."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _inside(frame.filename, (OURS,))]
    own = [frame for frame in frames if not _inside(frame.filename, LIBRARIES)]
    if not own and not isinstance(error, SyntaxError):
        # an app that was installed lies among the libraries
        own = frames
    told = "".join(traceback.format_list(own[-MOST_FRAMES:])).splitlines()
    if isinstance(error, SyntaxError):
        # the line lies in no frame, because it was never run
        told += "".join(traceback.format_exception_only(error)).splitlines()[:-1]
    return [line for line in told if line.strip()]


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _inside(file: str, folders: tuple[Path, ...]) -> bool:
    return file.startswith("<frozen") or any(Path(file).is_relative_to(folder) for folder in folders)
