"""Solutions that searches found once, as lines of JSON; their developments are verified like any design."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def solutions(name: str) -> list[dict[str, Any]]:
    """Return the lines of one file."""
    text = (resources.files(__package__) / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
