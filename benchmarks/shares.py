"""Time, bytes and memory of averaging by shares, against numpy's plain mean, an all-reduce and pairwise masks.

python benchmarks/shares.py                       9 peers, 11.2 million float32 each, strength 3
python benchmarks/shares.py --parameters 1000000 --repeat 3
python benchmarks/shares.py --growth              time per peer and parameter for 9 to 99 peers

Run it on an idle machine; the ratios within one run are what counts.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from pairwise import pairwise
from securedfl.designs import Design, best
from securedfl.protocols import by_name
from securedfl.protocols.randomness import keystream
from securedfl.protocols.shares.layout import layout_for
from securedfl.simulation import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--parameters", type=int, default=11_200_000)
    parser.add_argument("--strength", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5, help="the best of so many runs counts")
    parser.add_argument("--growth", action="store_true", help="only how time grows with the number of peers")
    arguments = parser.parse_args()
    print(f"load of the last minute: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores\n")
    if arguments.growth:
        growth(arguments.strength, arguments.repeat)
    else:
        compare(arguments.peers, arguments.parameters, arguments.strength, arguments.repeat)


def compare(peers: int, parameters: int, strength: int, repeat: int) -> None:
    rng = np.random.default_rng(0)
    vectors = [rng.standard_normal(parameters, dtype=np.float32) for _ in range(peers)]
    for vector in vectors:
        vector *= 0.05  # in place: a temporary array would raise the high-water mark
    design = best(peers, 3, 0)
    inputs = sum(vector.nbytes for vector in vectors)
    protocol = by_name("shares").on(design, strength=strength)

    before = peak()
    outcome = run(protocol, vectors)
    memory = peak() - before
    print(f"{peers} peers x {parameters:,} float32, {inputs / 1e6:.0f} MB in all; {design}, strength {strength}")

    cases: dict[str, Callable[[], object]] = {
        "np.mean(list_of_arrays, axis=0)": lambda: np.mean(vectors, axis=0),
        "shares, 32 bits": lambda: run(protocol, vectors),
        "shares, 32 bits, one thread": lambda: run(protocol, vectors, threads=1),
        "shares, 64 bits": lambda: run(by_name("shares").on(design, strength=strength, bits=64), vectors),
        "resilient shares, 32 bits": lambda: run(by_name("resilient").on(design, collusion=strength - 1), vectors),
        "pairwise masks, 32 bits": lambda: run(partial(pairwise, design=design), vectors),
        "grouped (Algorithm 3 in a field)": lambda: run(by_name("grouped").on(design), vectors),
        "AES keystream of the masks, one thread": lambda: expand(masked(design, strength, parameters)),
    }
    seconds = best_of(cases, repeat)
    base = next(iter(seconds.values()))
    print(f"\n{'':42}seconds   x np.mean")
    for name, taken in seconds.items():
        print(f"{name:42}{taken:7.3f}   {taken / base:9.2f}")

    optimal = 2 * vectors[0].nbytes * (peers - 1) / peers
    print(f"\n{'':42}bytes sent per peer, most, x optimal all-reduce; steps")
    for name, case in list(cases.items())[1:7]:
        found = outcome if name == "shares, 32 bits" else case()
        print(f"{name:42}{max(found.sent) / 1e6:9.2f} MB   {max(found.sent) / optimal:9.3f}   {found.steps:3}")

    error = np.abs(outcome.average - np.mean(vectors, axis=0, dtype=np.float64)).max()
    print(f"\nerror against the true mean: {error:.1e} = 2^{np.log2(error):.1f}")
    print(f"memory beyond the inputs, high-water mark: {memory / 1e6:.0f} MB = {memory / inputs:.2f} x the inputs")
    words = masked(design, strength, parameters)
    limit = seconds["AES keystream of the masks, one thread"]
    print(
        f"masks: {words * 4 / 1e6:.0f} MB of keystream at {words * 4 / limit / 1e9:.1f} GB/s on one core; expanded "
        "once here, because peers in one process share them, but by both ends on a network"
    )


def masked(design: Design, strength: int, parameters: int) -> int:
    """Return how many ring elements of masks one average expands."""
    layout = layout_for(design, design.turns(0, strength), parameters)
    return sum(end - first for u in range(layout.n) for _, first, end, full, _ in layout.sending(u) if not full)


def expand(words: int, piece: int = 1 << 18) -> None:
    for _ in range(0, words * 4, piece):
        keystream(bytes(32), piece)


def growth(strength: int, repeat: int) -> None:
    print("peers   gap   x np.mean   ns per peer and parameter   bytes / optimal   pairwise: ns")
    for peers in (9, 15, 27, 45, 63, 99):
        parameters = 36_000_000 // peers
        rng = np.random.default_rng(0)
        vectors = [0.05 * rng.standard_normal(parameters, dtype=np.float32) for _ in range(peers)]
        design = best(peers, 3, 0)
        cases = {
            "mean": lambda vectors=vectors: np.mean(vectors, axis=0),
            "shares": lambda v=vectors, d=design: run(by_name("shares").on(d, strength=strength), v),
            "pairwise": lambda v=vectors, d=design: run(partial(pairwise, design=d), v),
        }
        seconds = best_of(cases, repeat)
        sent = max(run(by_name("shares").on(design, strength=strength), vectors).sent)
        each = {name: taken / peers / parameters * 1e9 for name, taken in seconds.items()}
        optimal = 2 * vectors[0].nbytes * (peers - 1) / peers
        print(
            f"{peers:5} {design.gap:5} {seconds['shares'] / seconds['mean']:11.2f} {each['shares']:27.2f} "
            f"{sent / optimal:17.3f} {each['pairwise']:14.2f}"
        )


def best_of(cases: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Take turns, so that a noisy moment hits all cases alike, and keep the best of each.

    Each case runs twice in a row: the first run pays for memory that the operating system took back in the meantime,
    which np.mean, with its copy of all inputs, would suffer from most.
    """
    seconds = dict.fromkeys(cases, float("inf"))
    for _ in range(repeat):
        for name, case in cases.items():
            for _ in range(2):
                start = time.perf_counter()
                case()
                seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def peak() -> int:
    """Return the high-water mark of this process's memory in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
