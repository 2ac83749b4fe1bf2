"""Where torch computes, and its generators there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from securedfl.errors import ConfigError


def find_device(name: str) -> torch.device:
    """Return the device of that name; one that this machine does not have is an error that says what it has."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind, _, number = name.partition(":")
    count = torch.cuda.device_count() if there["cuda"] and kind == "cuda" else 1
    if not there.get(kind) or int(number or 0) >= count:
        known = ", ".join(kind for kind, found in there.items() if found)
        raise ConfigError(f"device = {name!r}: PyTorch finds none such on this machine; it finds {known}")
    return torch.device(name)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators (batches, dropout, initial parameters) and give the caller's state back."""
    before, far = torch.get_rng_state(), None
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":  # dropout on an accelerator draws there
        generator = getattr(torch, device.type)
        far = generator.get_rng_state()
        generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
        if far is not None:
            generator.set_rng_state(far)
