"""PEFT: LoRA whose average is exact.

LoRA adds B A to a weight. The mean of the sites' products is not the product of their means, unless all sites have
the same A. So A is drawn from a seed, alike everywhere, and frozen; B is trained and averaged (FFA-LoRA, Sun et al.,
arXiv 2403.12313). It also halves what is trained, kept and sent.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

from securedfl.errors import InvalidInputError, needing


def freeze_a_(model: Any, seed: int = 0) -> Any:
    """Draw every LoRA A of a model from a seed, the same at all sites, and freeze it; return the model.

    Parameters
    ----------
    model
        A PEFT model, or any module whose parameters have ``lora_A`` or ``lora_embedding_A`` in their names.
    seed
        The same at all sites.

    Raises
    ------
    InvalidInputError
        There is no such parameter.
    """
    with needing("securedfl.adapters.peft"):
        import torch
    found = [(name, a) for name, a in model.named_parameters() if "lora_A" in name or "lora_embedding_A" in name]
    if not found:
        raise InvalidInputError(f"a {type(model).__name__} has no parameter of the name lora_A; add LoRA to it first")
    for name, a in found:
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        # as torch.nn.Linear begins, and as PEFT does
        bound = 1 / math.sqrt(a.shape[-1])
        drawn = torch.empty(a.shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator)
        a.detach().copy_(drawn)
        a.requires_grad_(False)
    return model
