"""What makes two runs the same: which settings decide their numbers, and what those were before they were added."""

from __future__ import annotations

import hashlib
import json

from securedfl.federation.config import TrainConfig
from securedfl.federation.settings import RENAMED

FREE = frozenset(
    {
        *("out", "data_dir", "engine", "address", "workers", "messages_every", "checkpoint_every", "keep_updates"),
        *("tensorboard", "wandb", "mlflow"),
    }
)
"""Settings that change no number, so that a resumed run may have others."""

ADDED = frozenset(
    {
        *("integers", "local", "initial", "learning_rate_schedule", "learning_rate_decay", "warmup", "proximal"),
        *("precision", "device", "common_optimizer", "entry", "data", "label", "user", "features", "held_back"),
        "between_rounds",
    }
)
"""Settings that older run folders do not have; what they were then is not hashed, so that those go on."""

BEFORE = {"initial": "own", "between_rounds": "keep"}
"""What added settings were in older run folders, where it is not today's default."""


def as_before(config: TrainConfig) -> frozenset[str]:
    """Return the added settings that are what they were before they were added."""
    defaults = {key: TrainConfig.model_fields[key].default for key in ADDED} | BEFORE
    return frozenset(key for key in ADDED if getattr(config, key) == defaults[key])


def fingerprint(config: TrainConfig) -> str:
    """Return a short hash of all settings that change numbers, under the names they had when runs were first hashed."""
    first_names = {new: old for old, new in RENAMED.items()}
    left_out = FREE | as_before(config)
    decisive = {first_names.get(key, key): value for key, value in config.to_dict().items() if key not in left_out}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


def changed_settings(mine: TrainConfig, theirs: TrainConfig) -> list[str]:
    """Name the settings by which the numbers of two runs may differ, with both values."""
    one, other = mine.to_dict(), theirs.to_dict()
    return [
        f"{key} = {one.get(key)!r}, not {other.get(key)!r}"
        for key in sorted(one.keys() | other.keys())
        if key not in FREE and one.get(key) != other.get(key)
    ]
