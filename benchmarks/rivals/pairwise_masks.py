"""Pairwise masks after Bonawitz et al., without a server, in memory: `benchmarks/pairwise.py`, beside ours in memory.

One process runs all peers one after the other; bytes are those that peers would send.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from common import Watch, arguments, largest_error, tell, vector, versions

sys.path.append(str(Path(__file__).parents[1]))


def main() -> None:
    from pairwise import pairwise
    from securedfl.designs import best
    from securedfl.protocols import by_name
    from securedfl.simulation.driver import run

    args = arguments(__doc__)
    design = best(args.peers, 3, 0)
    # three shares per peer need three partitions
    design = design if design.gap >= 3 else best(args.peers, 2, 0)
    if args.protocol == "pairwise":
        protocol = partial(pairwise, design=design)
    else:
        options = {"shares": {"strength": 3}}.get(args.protocol, {})
        protocol = by_name(args.protocol).on(design, **options).at(1)
    vectors = [vector(peer, args.size) for peer in range(args.peers)]
    outcome = run(protocol, vectors)
    watch = Watch()
    watch.begin()
    for _ in range(args.repeat):
        with watch.average():
            outcome = run(protocol, vectors)
    result = watch.result(args, largest_error=largest_error(outcome.average, args.peers))
    tell({**result, "bytes_per_peer": sum(outcome.sent) / args.peers, "versions": versions("securedfl", "numpy")})


if __name__ == "__main__":
    main()
