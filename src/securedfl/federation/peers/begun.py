"""Which settings of federation.toml are not those that the run in a site's folder began with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from securedfl.errors import RunFolderError
from securedfl.federation.config import TrainConfig
from securedfl.federation.run_folder.summary import read_summary
from securedfl.network.journal import OtherRunError


@contextmanager
def naming_changes(out: Path, config: TrainConfig) -> Iterator[None]:
    """Add to the error about the state of another run in which settings it differs, as far as its folder says that."""
    try:
        yield
    except OtherRunError as error:
        if not (found := changes(out, config)):
            raise
        raise OtherRunError(f"{error}; of [train] differs: {found}") from None


def changes(out: Path, config: TrainConfig) -> str:
    """Return the settings of training that are not those of the run in a folder, in words; empty if none is known."""
    try:
        before = read_summary(out).config
    except RunFolderError:
        return ""
    # as the folder holds them; a change of rounds is the operators' business
    now = json.loads(json.dumps(config.to_dict()))
    names = sorted(key for key in before.keys() & now.keys() - {"rounds", "peers"} if before[key] != now[key])
    return ", ".join(f"{key} was {json.dumps(before[key])} and is {json.dumps(now[key])} now" for key in names)
