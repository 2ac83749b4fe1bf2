"""Per-sample clipping against a plain step, and noise against np.mean, in processor time within one run.

python benchmarks/clipping.py                  the CNN of FEMNIST and the small CNN, batches of 32 and 228
python benchmarks/clipping.py --repeat 20
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from securedfl.learning.models.flat import FlatModel
from securedfl.learning.models.images import Convolution
from securedfl.learning.models.registry import build
from securedfl.learning.training.clipping import ClippedGradients
from securedfl.protocols.noise import skellam

CLIP = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=10, help="the best of so many runs counts")
    parser.add_argument("--parameters", type=int, default=1_206_590)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, shape, classes in (("cnn", (1, 28, 28), 62), ("cnn-small", (1, 8, 8), 10)):
        for batch in (32, 228):
            compare_steps(name, shape, classes, batch, arguments.repeat)
    compare_noise(arguments.parameters, arguments.repeat)


def compare_steps(name: str, shape: tuple[int, ...], classes: int, batch: int, repeat: int) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(batch, *shape), torch.randint(classes, (batch,))
    model = FlatModel(build(name, shape, classes))
    clipped = ClippedGradients(model, lambda s, t: nn.functional.cross_entropy(s, t, reduction="none"))
    # vmap and Opacus do not know our convolution, which lays out memory anew
    other = with_plain_convolutions(build(name, shape, classes))

    def plain() -> None:
        model.gradient.zero_()
        nn.functional.cross_entropy(model.module(x), y).backward()

    cases: dict[str, Callable[[], object]] = {
        "plain step": plain,
        "ours (book-keeping)": lambda: clipped.add(x, y, CLIP),
        "torch.func (vmap of grad)": by_vmap(other, x, y),
    }
    hooks = by_opacus(with_plain_convolutions(build(name, shape, classes)), x, y)
    if hooks is not None:
        cases["Opacus' GradSampleModule"] = hooks
    seconds = best_of(cases, repeat)
    print(f"\n{name}, {model.schema.size:,} parameters, batch of {batch}")
    base = next(iter(seconds.values()))
    for case, taken in seconds.items():
        print(f"  {case:30}{1e3 * taken:9.1f} ms   {taken / base:6.2f} x a plain step")


def with_plain_convolutions(module: nn.Module) -> nn.Module:
    for layer in module.modules():
        if isinstance(layer, Convolution):
            layer.__class__ = nn.Conv2d
    return module


def by_vmap(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    def loss(parameters: dict[str, torch.Tensor], one: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(module, parameters, one[None]), label[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def step() -> None:
        # in pieces, as ours, or the gradients of 228 samples fill a gigabyte
        for start in range(0, len(x), 32):
            found = each(parameters, x[start : start + 32], y[start : start + 32])
            summed(list(found.values()))

    return step


def by_opacus(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object] | None:
    try:
        from opacus import GradSampleModule
    except ImportError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = GradSampleModule(module)

    def step() -> None:
        for start in range(0, len(x), 32):
            wrapped.zero_grad()
            loss = nn.functional.cross_entropy(wrapped(x[start : start + 32]), y[start : start + 32], reduction="sum")
            loss.backward()
            summed([p.grad_sample for p in wrapped.parameters()])

    return step


def summed(gradients: list[torch.Tensor]) -> None:
    norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
    factors = (CLIP / norms).clamp(max=1.0)
    for g in gradients:
        torch.einsum("b,b...->...", factors, g)


def compare_noise(parameters: int, repeat: int) -> None:
    random = np.random.default_rng(0)
    vectors = [random.standard_normal(parameters, dtype=np.float32) for _ in range(9)]
    print(f"\nnoise of one peer, {parameters:,} numbers; np.mean is of 9 such vectors")
    key = os.urandom(32)
    for deviation in (500.0, 5225.0, 11_000.0):
        noise = skellam(deviation**2)
        cases: dict[str, Callable[[], object]] = {
            "np.mean(vectors, axis=0)": lambda: np.mean(vectors, axis=0),
            f"Skellam, {deviation:.0f} grid steps": lambda noise=noise: noise(parameters, key),
        }
        seconds = best_of(cases, repeat)
        base = next(iter(seconds.values()))
        for case, taken in seconds.items():
            print(f"  {case:30}{1e3 * taken:9.1f} ms   {taken / base:6.2f} x np.mean")


def best_of(cases: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Return the least processor time of each case; the cases take turns, so that a slow moment hits all."""
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(repeat):
        for name, work in cases.items():
            started = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - started)
    return best


if __name__ == "__main__":
    main()
