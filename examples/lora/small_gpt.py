"""A small GPT over characters, and LoRA on its linear layers; nothing but PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

CONTEXT, WIDTH, HEADS, LAYERS, RANK = 64, 64, 4, 2, 8
TEXTS = Path(__file__).parent / "texts"
SITES = ("hamlet", "othello", "lear", "macbeth", "richard", "brutus", "antony", "coriolanus", "titus")
"""Nine roles of nine tragedies and histories, in verse. The base text is comedy, in prose."""
HELD_BACK = 0.15


class Lora(nn.Module):
    """A linear layer W that stays as it is, and B A beside it; B begins at zero."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(RANK, linear.in_features))
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        """Return (W + B A) x."""
        return self.linear(x) + functional.linear(functional.linear(x, self.lora_A), self.lora_B)


class Block(nn.Module):
    """Attention to what came before, then two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.gather = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return what becomes of (batch, time, width)."""
        batch, time, _ = x.shape
        parts = self.attend(self.before(x)).view(batch, time, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.gather(seen.transpose(1, 2).reshape(batch, time, WIDTH))
        return x + self.narrow(functional.gelu(self.widen(self.between(x))))


class Gpt(nn.Module):
    """Tells the next character."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.last = nn.LayerNorm(WIDTH)
        for part in (self.letters, self.places):
            nn.init.normal_(part.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Return scores of what follows each character of (batch, time)."""
        x = self.letters(text) + self.places.weight[: text.shape[1]]
        return functional.linear(self.last(self.blocks(x)), self.letters.weight)

    def with_lora(self) -> Gpt:
        """Freeze everything, and put LoRA on all linear layers."""
        self.requires_grad_(False)
        for block in self.blocks:
            for name in ("attend", "gather", "widen", "narrow"):
                setattr(block, name, Lora(getattr(block, name)))
        return self


def loss_of(model: nn.Module, rows: Tensor, reduction: str = "mean") -> Tensor:
    """Return the cross-entropy of the next character, for rows of characters."""
    scores = model(rows[:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten(), reduction=reduction)


def some_rows(text: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return rows that begin anywhere in a text."""
    starts = torch.randint(len(text) - CONTEXT, (count,), generator=generator)
    return torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])


def all_rows(text: Tensor) -> Tensor:
    """Return a text cut into rows."""
    count = (len(text) - 1) // CONTEXT
    return torch.stack([text[k * CONTEXT : (k + 1) * CONTEXT + 1] for k in range(count)])


def read(folder: Path | None = None) -> dict[str, str]:
    """Return the base text and those of the sites: as shipped, or longer ones of the same roles from a data folder."""
    if folder is None:
        return {name: (TEXTS / f"{name}.txt").read_text(encoding="utf-8") for name in ("base", *SITES)}
    import pyarrow.parquet

    found = pyarrow.parquet.read_table(folder / "shakespeare" / "train.parquet").to_pylist()
    roles = {row["character_id"]: row["text"] for row in found}
    base = ("1kinghenryiv_FALSTAFF", "2kinghenryiv_FALSTAFF", "merrywivesofwindsor_FALSTAFF")
    sites = {
        "hamlet": "hamlet_HAMLET",
        "othello": "othello_OTHELLO",
        "lear": "kinglear_KING_LEAR",
        "macbeth": "macbeth_MACBETH",
        "richard": "kingrichardii_KING_RICHARD_II",
        "brutus": "juliuscaesar_BRUTUS",
        "antony": "antonyandcleopatra_MARK_ANTONY",
        "coriolanus": "coriolanus_CORIOLANUS",
        "titus": "titusandronicus_TITUS_ANDRONICUS",
    }
    return {"base": "".join(roles[key] for key in base)} | {name: roles[key] for name, key in sites.items()}


def numbered(texts: dict[str, str]) -> tuple[dict[str, Tensor], int]:
    """Return texts as numbers of their characters, and how many characters there are."""
    known = sorted(set("".join(texts.values())))
    place = {character: number for number, character in enumerate(known)}
    return {name: torch.tensor([place[c] for c in text]) for name, text in texts.items()}, len(known)


def parted(text: Tensor) -> tuple[Tensor, Tensor]:
    """Return a site's text to train on, and the end of it, which is held back."""
    at = int(len(text) * (1 - HELD_BACK))
    return text[:at], text[at:]


def load_base(path: Path, characters: int) -> Gpt:
    """Return the pretrained model with fresh LoRA."""
    model = Gpt(characters)
    with np.load(path) as arrays:
        model.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})
    return model.with_lora()
