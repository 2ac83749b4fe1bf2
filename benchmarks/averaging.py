"""Time and memory of averaging by Algorithm 3 against numpy's plain mean of the same arrays, and the choice of rho.

python benchmarks/averaging.py                 9 peers, 11.2 million float32 each
python benchmarks/averaging.py --parameters 1000000 --repeat 5
python benchmarks/averaging.py --rho           of `paper`: mask width against rounding error
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np

from securedfl.designs import best
from securedfl.protocols import InsecureSeededDraw, by_name, secret_uniform
from securedfl.protocols.randomness import keystream
from securedfl.simulation import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--parameters", type=int, default=11_200_000)
    parser.add_argument("--repeat", type=int, default=5, help="the best of so many runs counts")
    parser.add_argument("--rho", action="store_true", help="print the table behind the default rho of paper instead")
    arguments = parser.parse_args()
    if arguments.rho:
        compare_rho()
    else:
        compare_speed(arguments.peers, arguments.parameters, arguments.repeat)


def compare_speed(peers: int, parameters: int, repeat: int) -> None:
    rng = np.random.default_rng(0)
    vectors = [0.05 * rng.standard_normal(parameters, dtype=np.float32) for _ in range(peers)]
    design = best(peers, 3, 0)
    size = sum(vector.nbytes for vector in vectors)
    grouped, paper = by_name("grouped").on(design), by_name("paper").on(design)
    of_16_bits = by_name("grouped").on(design, bits=16, range=1.0)

    before = peak()
    outcome = run(grouped, vectors)
    memory = peak() - before
    error = np.abs(outcome.average - np.mean(vectors, axis=0, dtype=np.float64))
    print(f"{peers} peers x {parameters:,} float32, {size / 1e6:.0f} MB in all; design {design.hash}, gap {design.gap}")

    def constant(_peer: int, _offset: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda like: np.full_like(like, 1)

    cases = {
        "np.mean(list_of_arrays, axis=0)": lambda: np.mean(vectors, axis=0),
        "grouped (field, 32 bits)": lambda: run(grouped, vectors),
        "grouped, one thread": lambda: run(grouped, vectors, threads=1),
        "grouped, one thread, constant masks": lambda: run(grouped, vectors, threads=1, draws=constant),
        "grouped (field, 16 bits)": lambda: run(of_16_bits, vectors),
        "paper (floats)": lambda: run(paper, vectors),
        "plain (FedAvg)": lambda: run(by_name("plain").on(design), vectors),
        "masks alone, one thread": lambda: [draw_in_chunks(vector) for vector in vectors],
        "AES-256-CTR keystream alone, one thread": lambda: [keystream(bytes(32), v.nbytes) for v in vectors],
    }
    seconds = best_of(cases, repeat)
    base = next(iter(seconds.values()))
    print(f"\n{'':42}seconds   x np.mean")
    for name, taken in seconds.items():
        print(f"{name:42}{taken:7.3f}   {taken / base:9.2f}")
    print(f"\nmemory beyond the inputs: {memory / 1e6:.0f} MB = {memory / size:.2f} x the inputs (aim: at most 1)")
    print(f"error: max {error.max():.1e}, root mean square {np.sqrt(np.mean(error**2)):.1e}")
    for name, averaging in {"32 bits": grouped, "16 bits": of_16_bits, "paper": paper}.items():
        found = outcome if averaging is grouped else run(averaging, vectors)
        print(f"bytes sent per peer, {name}: {np.mean(found.sent) / vectors[0].nbytes:.2f} x, {found.steps} steps")


def best_of(cases: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Take turns, so that a noisy moment hits all cases alike, and keep the best of each."""
    seconds = dict.fromkeys(cases, float("inf"))
    for _ in range(repeat):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def draw_in_chunks(vector: np.ndarray, chunk: int = 1 << 16) -> None:
    for start in range(0, len(vector), chunk):
        secret_uniform(vector[start : start + chunk])


def compare_rho() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 0.05, size=(9, 200_000))
    print(
        "rho        mask width   float32 max / rms error   float64 max / rms error   (parameters ~ N(0, 0.05), 9 peers)"
    )
    for exponent in range(4, -13, -2):
        cells = []
        for dtype in (np.float32, np.float64):
            vectors = list(values.astype(dtype))
            paper = by_name("paper").on(best(9, 3, 0), rho=2.0**exponent)
            got = run(paper, vectors, draws=lambda peer, offset: InsecureSeededDraw(0, peer=peer, offset=offset))
            error = got.average - np.mean(vectors, axis=0, dtype=np.float64)
            cells.append(f"{np.abs(error).max():.1e} / {np.sqrt(np.mean(error**2)):.1e}")
        print(f"2^{exponent:<8} {2.0**-exponent:10g}   {cells[0]:23}   {cells[1]}")


def peak() -> int:
    """Return the high-water mark of this process's memory in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
