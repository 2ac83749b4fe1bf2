"""LoRA between nine real peer processes, beside pooled fine-tuning and every site alone: `make demo-lora`.

A small GPT is trained on comedy, then fine-tuned on nine roles of tragedies, one per site.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from lora_app import BATCH, RATE, STEPS, test, train
from small_gpt import SITES, Gpt, load_base, loss_of, numbered, parted, read, some_rows

from securedfl.adapters.peft import freeze_a_

COMMAND = "from securedfl.cli import main; main()"
PRETRAINING, ROUNDS, SEED = 800, 20, 0


def main() -> None:
    """Pretrain, fine-tune in three ways, and compare."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--plays", type=Path, help="a data folder with shakespeare/train.parquet: longer texts")
    given.add_argument("--rounds", type=int, default=ROUNDS)
    given.add_argument("--pretraining", type=int, default=PRETRAINING, metavar="STEPS")
    given.add_argument("--out", type=Path, default=Path("runs") / f"lora-{time.strftime('%Y%m%d-%H%M%S')}")
    options = given.parse_args()
    # for steps so small a second thread costs more than it gives
    torch.set_num_threads(1)
    texts, characters = numbered(read(options.plays))
    options.out.mkdir(parents=True)
    base = options.out.resolve() / "base.npz"

    say(f"pretrains a small GPT on {len(texts['base']):,} characters of comedy")
    np.savez(base, **pretrained(texts["base"], characters, options.pretraining))
    fresh = lambda: freeze_a_(load_base(base, characters), seed=SEED)  # noqa: E731
    losses = {"before fine-tuning": everywhere(fresh(), texts)}

    say(f"fine-tunes on all {len(SITES)} texts in one place")
    steps = options.rounds * STEPS
    pooled = [parted(texts[site])[0] for site in SITES]
    losses["pooled"] = everywhere(tuned(fresh(), pooled, steps), texts)

    say("fine-tunes at every site alone")
    alone = [everywhere(tuned(fresh(), [text], steps), texts) for text in pooled]
    losses["every site alone"] = float(np.mean(alone))

    say(f"fine-tunes between {len(SITES)} peer processes, over TLS")
    run = options.out / "federated"
    model = fresh()
    load(model, federated(run, base, options))
    losses["federated"] = everywhere(model, texts)
    tell(losses, run, model)


def pretrained(text: torch.Tensor, characters: int, steps: int) -> dict[str, np.ndarray]:
    """Train a GPT from scratch."""
    torch.manual_seed(SEED)
    model, generator = Gpt(characters), torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for step in range(steps):
        loss = loss_of(model, some_rows(text, 16, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % (steps // 5 or 1) == 0:
            print(f"  step {step + 1}/{steps}  loss {float(loss.detach()):.3f}", flush=True)
    return {name: value.numpy() for name, value in model.state_dict().items()}


def tuned(model: Gpt, texts: list[torch.Tensor], steps: int) -> Gpt:
    """Train B as a site does; a step takes as many rows of every text as a site's step."""
    optimizer = torch.optim.Adam([value for value in model.parameters() if value.requires_grad], lr=RATE)
    generators = [torch.Generator().manual_seed(k) for k in range(len(texts))]
    if len(texts) == 1:
        train(model, optimizer, texts[0], steps, BATCH, generators[0])
        return model
    for step in range(steps):
        rows = [some_rows(text, BATCH, one) for text, one in zip(texts, generators, strict=True)]
        loss = loss_of(model, torch.cat(rows))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % (steps // 4 or 1) == 0:
            print(f"  step {step + 1}/{steps}  loss {float(loss.detach()):.3f}", flush=True)
    return model


def everywhere(model: Gpt, texts: dict[str, torch.Tensor]) -> float:
    """Return the mean loss per character on what all sites held back."""
    scores = [test(model, parted(texts[site])[1]) for site in SITES]
    return sum(loss for _, loss, _ in scores) / sum(count for _, _, count in scores)


def federated(run: Path, base: Path, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Run the federation by `securedfl up`, and return what all peers hold in the end."""
    data = f"base={base}" + (f",plays={options.plays.resolve()}" if options.plays else "")
    command = [sys.executable, "-c", COMMAND, "up", "--entry", "lora_app:make", "--peers", str(len(SITES))]
    command += ["--rounds", str(options.rounds), "--protocol", "shares", "--collusion", "2", "--seed", str(SEED)]
    here = os.pathsep.join(filter(None, [str(Path(__file__).parent.resolve()), os.environ.get("PYTHONPATH")]))
    subprocess.run(  # noqa: S603 - our own interpreter and command
        [*command, "--data", data, "--out", str(run)], check=True, env={**os.environ, "PYTHONPATH": here}
    )
    with np.load(run / "federation" / "peer-0" / "model.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def load(model: Gpt, arrays: dict[str, np.ndarray]) -> None:
    """Give a model the averaged parameters."""
    named = dict(model.named_parameters())
    for name, array in arrays.items():
        named[name].detach().copy_(torch.from_numpy(array))


def tell(losses: dict[str, float], run: Path, model: Gpt) -> None:
    """Print the comparison, what was certified, and where the report is."""
    trained = sum(value.numel() for value in model.parameters() if value.requires_grad)
    whole = sum(value.numel() for value in model.parameters())
    print(f"\nTrained, kept and sent: {trained:,} of {whole:,} parameters (B of LoRA).")
    print("Loss per character on the text that the sites held back:\n")
    for name in ("before fine-tuning", "every site alone", "federated", "pooled"):
        print(f"  {name:20} {losses[name]:.4f}  {100 * (losses[name] / losses['pooled'] - 1):+6.2f} % against pooled")
    certificate = json.loads((run / "certificate.json").read_text(encoding="utf-8"))
    print(f"\nCertified: {sentence(certificate)}\nReport: {run / 'report.html'}")
    near = losses["federated"] <= 1.01 * losses["pooled"]
    print(f"The federated loss is {'' if near else 'NOT '}within 1 % of pooled fine-tuning.")
    sys.exit(not near)


def sentence(certificate: dict) -> str:
    """Return the sentence of a certificate."""
    return certificate.get("sentence") or next(iter(certificate.values()))["sentence"]


def say(what: str) -> None:
    """Tell what happens now."""
    print(f"[{time.strftime('%H:%M:%S')}] {what}", flush=True)


if __name__ == "__main__":
    main()
