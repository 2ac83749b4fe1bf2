"""Read a run folder again and again while it is written; files that did not change are not read twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from securedfl.designs import Design
from securedfl.errors import SecuredFLError
from securedfl.federation.methods import averaging_of
from securedfl.federation.run_folder import files
from securedfl.federation.run_folder.live import Live, read_live
from securedfl.federation.run_folder.metrics import PeerRow, Row, read_rows
from securedfl.federation.run_folder.reader import run_folder
from securedfl.reporting.live.snapshot import Content, Kind

T = TypeVar("T")

NOTHING: dict[str, Any] = {}
"""What a file holds that is not there yet."""


class Watched:
    """A run folder, of a simulation, of `securedfl up` or of a real peer, that may not have begun yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = run_folder(folder)
        self._kept: dict[Path, tuple[object, Any]] = {}

    @property
    def kind(self) -> Kind:
        """What the folder is of."""
        if files.is_trial(self.folder):
            return "trial"
        return "simulation" if (self.folder / files.CONFIG).exists() else "peer"

    def read(self) -> Content:
        """Return what the files say now; what is missing or half written is left out."""
        kind = self.kind
        places = {"": self.folder}
        if kind == "trial":
            places = {
                path.name: path for path in sorted((self.folder / files.FEDERATION).glob("peer-*")) if path.is_dir()
            }
        lives = {name: live for name, path in places.items() if (live := read_live(path)) is not None}
        if kind == "peer":
            lives = {live.name: live for live in lives.values()}
        real = {name: self._rows(path, PeerRow) for name, path in places.items()} if kind != "simulation" else {}
        settings = self._fresh(self.folder / files.CONFIG, lambda: files.read_settings(self.folder), NOTHING)
        certificate = self.folder / files.CERTIFICATE
        return Content(
            name=self.folder.resolve().name,
            kind=kind,
            peers=int(settings.get("peers", 0)),
            rounds=int(settings.get("rounds", 0)),
            members=int(settings.get("peers_per_round", 0)),
            rows=tuple(self._rows(self.folder, Row)) if kind == "simulation" else (),
            peer_rows=real,
            lives=lives,
            certificates=self._fresh(certificate, lambda: files.read_certificates(self.folder), {}),
            meetings=self._meetings(lives.get("")),
        )

    def _rows(self, folder: Path, kind: type[T]) -> list[T]:
        rows: Any = read_rows
        return self._fresh(folder / files.METRICS, lambda: rows(folder, kind), [])

    def _meetings(self, live: Live | None) -> tuple[tuple[int, ...], ...]:
        """Return the groups that meet in a simulated round."""
        if live is None or not live.method:
            return ()
        with suppress(SecuredFLError):
            config = self._fresh(self.folder / files.CONFIG, lambda: files.read_config(self.folder), None, "config")
            design = self._fresh(self.folder / files.DESIGN, lambda: Design.load(self.folder / files.DESIGN), None)
            if config is not None and design is not None and config.members == config.peers:
                # of a method that does not average, nothing: that is an error, and suppressed
                used = averaging_of(config, live.method, design).used(live.round)
                return tuple(group for labels in used for group in Design([labels]).partition(0))
        return ()

    def _fresh(self, path: Path, read: Callable[[], T], otherwise: T, key: str = "") -> T:
        """Return what a file holds; what it held before if it is damaged for the moment, or a default."""
        place = path / key if key else path
        try:
            about = path.stat()
            version = (about.st_mtime_ns, about.st_size)
            if place not in self._kept or self._kept[place][0] != version:
                self._kept[place] = (version, read())
        except (OSError, SecuredFLError):
            pass
        found: T = self._kept.get(place, (None, otherwise))[1]
        return found
