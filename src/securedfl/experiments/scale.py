"""How much of an experiment is run: shares of its rounds, users and model width, and how that is told."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from securedfl.errors import ConfigError, unknown
from securedfl.federation.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Shares of the full size, from above 0 to 1; 1 is the paper's."""

    rounds: float = 1.0
    users: float = 1.0
    width: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Scale:
        """Read "0.2", which scales everything alike, or "rounds=0.4,users=0.25,width=0.5"; what is not named is 1."""
        names = [field.name for field in fields(cls)]
        if "=" not in text:
            share = _share(text, text)
            return cls(rounds=share, users=share, width=share)
        shares: dict[str, float] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if name not in names:
                raise unknown(f"part of --scale {text}:", name, names)
            if not equals or name in shares:
                raise ConfigError(
                    f"--scale {text}: give each of {', '.join(names)} once, as in {names[0]}=0.4"
                )
            shares[name] = _share(value, text)
        return cls(**shares)

    @property
    def suffix(self) -> str:
        """What the names of scaled run folders end with; nothing for the full size."""
        shares = {field.name: getattr(self, field.name) for field in fields(self)}
        return "".join(f"-{name}{share:g}" for name, share in shares.items() if share != 1)

    def of_rounds(self, full: int) -> int:
        """Return the scaled number of rounds; at least one."""
        return max(1, round(self.rounds * full))


def told(config: TrainConfig, full_rounds: int) -> str:
    """Say in numbers how a run is smaller than the paper's; nothing if it is not."""
    parts = []
    if config.rounds != full_rounds:
        parts.append(f"{config.rounds} of {full_rounds} rounds")
    if config.fraction != 1:
        parts.append(f"{100 * config.fraction:.3g} % of users")
    if config.width != 1:
        parts.append(f"layers {config.width:.3g} times as wide")
    return ", ".join(parts)


def _share(value: str, text: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise ConfigError(
            f"--scale {text}: {value!r} is no share from above 0 to 1; give one, such as 0.2, or "
            "rounds=0.4,users=0.25,width=0.5"
        )
    return share
