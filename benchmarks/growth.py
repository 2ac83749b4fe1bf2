"""How averages grow with the number of peers: over the network, and in memory up to 999 peers; CSV, and curves as SVG.

    python benchmarks/growth.py [--network 3,5,9,15,21,27] [--memory 3,9,27,81,243,999] [--size 100000] [--write]

Over the network every peer is a process of this machine (mutual TLS, votes and results on disk), so that time grows
with the work of all of them; processor time and bytes per peer are what a site of its own would see. In memory one
process runs all peers. Nothing here is asserted; a busy machine makes times longer, and processor times hardly.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "docs" / "results"
COLUMNS = (
    *("place", "protocol", "peers", "size", "repeat", "seconds", "processor_seconds_per_peer", "sent_bytes_per_peer"),
    *("partitions", "strength"),
)


def over_network(peers: int, size: int, repeat: int, protocol: str) -> dict[str, Any]:
    """Average between processes, and return what it took."""
    from network import run

    results = run("peer", {"peers": peers, "size": size, "repeat": repeat, "json": True, "protocol": protocol})
    spans = np.array([result["spans"] for result in results])
    return {
        "seconds": float(np.median(spans[..., 1].max(axis=0) - spans[..., 0].max(axis=0))),
        "processor_seconds_per_peer": float(np.mean([result["processor"] for result in results])),
        "sent_bytes_per_peer": float(np.mean([result["sent"] for result in results])) / repeat,
        "strength": 2 if protocol == "shares" else None,
    }


def in_memory(peers: int, size: int, repeat: int, protocol: str) -> dict[str, Any]:
    """Average in one process, and return what it took."""
    from securedfl.designs import best
    from securedfl.protocols import by_name
    from securedfl.simulation.driver import run

    design = best(peers, 3, 0)
    # two shares per peer need two partitions
    design = design if design.gap >= 2 else best(peers, 2, 0)
    options = {"strength": 2} if protocol == "shares" else {}
    averaging = by_name(protocol).on(design, **options).at(1)
    vectors = [np.random.default_rng(peer).standard_normal(size, dtype=np.float32) for peer in range(peers)]
    run(averaging, vectors)
    took, used, sent = [], [], 0.0
    for _ in range(repeat):
        began, processor = time.perf_counter(), time.process_time()
        sent = float(np.mean(run(averaging, vectors).sent))
        took.append(time.perf_counter() - began)
        used.append(time.process_time() - processor)
    return {
        "seconds": float(np.median(took)),
        "processor_seconds_per_peer": float(np.median(used)) / peers,
        "sent_bytes_per_peer": sent,
        "partitions": design.gap,
        **options,
    }


def measurements(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for place, counts, measure in (("network", args.network, over_network), ("memory", args.memory, in_memory)):
        for peers in counts:
            for protocol in ("shares", "grouped"):
                if protocol == "grouped" and peers < 9:
                    # too few partitions for groups that meet once
                    continue
                size = args.size if place == "network" else args.memory_size
                found = measure(peers, size, args.repeat, protocol)
                row = {
                    "place": place,
                    "protocol": protocol,
                    "peers": peers,
                    "size": size,
                    "repeat": args.repeat,
                    **found,
                }
                print(row, file=sys.stderr, flush=True)
                yield row


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw time, processor time and bytes by the number of peers, each per number averaged."""
    from matplotlib.figure import Figure

    from securedfl.reporting.figures import style
    from securedfl.reporting.svg import save_figure

    @style()
    def curves() -> Figure:
        figure = Figure(figsize=(10.8, 3.4), layout="constrained")
        shown = {
            "seconds": ("time of an average, ns per number and peer", lambda row: row["peers"]),
            "processor_seconds_per_peer": ("processor per peer, ns per number", lambda _row: 1),
            "sent_bytes_per_peer": ("sent per peer, bytes per number", lambda _row: 1),
        }
        for axes, (key, (label, each)) in zip(figure.subplots(1, 3), shown.items(), strict=True):
            for place, marker in (("network", "o"), ("memory", "s")):
                for protocol, line in (("shares", "-"), ("grouped", "--")):
                    own = [row for row in rows if (row["place"], row["protocol"]) == (place, protocol)]
                    unit = 1 if "bytes" in key else 1e9
                    values = [unit * row[key] / row["size"] / each(row) for row in own]
                    if own:
                        axes.plot([r["peers"] for r in own], values, line, marker=marker, label=f"{protocol}, {place}")
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("peers")
            axes.set_title(label, fontsize=9)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        return figure

    save_figure(curves(), path)


def counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", type=counts, default="3,5,9,15,21,27", help="numbers of peer processes")
    parser.add_argument("--memory", type=counts, default="3,9,27,81,243,999", help="numbers of peers in one process")
    parser.add_argument("--size", type=int, default=100_000, help="float32 of each peer over the network")
    parser.add_argument("--memory-size", type=int, default=10_000, help="the same in memory")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write docs/results/growth.csv and growth.svg")
    args = parser.parse_args()
    rows = list(measurements(args))
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the end", file=sys.stderr)
    if args.write:
        with (RESULTS / "growth.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        draw(rows, RESULTS / "growth.svg")


if __name__ == "__main__":
    main()
