"""What goes wrong inside an app, told as its author needs it: which function, which peer, which line of theirs."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from securedfl.errors import AppError, SecuredFLError

OURS = Path(__file__).parents[2]
LIBRARIES = tuple(Path(path) for name, path in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib")))

MOST_FRAMES = 10
"""The last lines of the author's that are told; a recursion has very many."""


@dataclass(frozen=True)
class Where:
    """Whose app it is: where it comes from, and the peer that it was made for."""

    entry: str = "the app"
    peer: str = ""

    @contextmanager
    def told(self, function: str, round: int | None = None) -> Iterator[None]:
        """Turn what a function of the app raises into an `AppError`; our own errors already say what to do."""
        try:
            yield
        except SecuredFLError:
            raise
        except Exception as error:
            at = f" at {self.peer}" if self.peer else ""
            at += f" in round {round}" if round else ""
            lines = "".join(f"\n{line}" for line in own_lines(error))
            raise AppError(
                f"{function} of {self.entry} failed{at}: {_in_words(error)}{lines}\nMend the app, then go on: train "
                "with --resume if the run had begun, or start the peer again"
            ) from error


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
