"""Averages over slow links: how long beyond what bandwidth and delay allow, and how many round trips.

    python benchmarks/slow_link.py [--peers 9] [--size 2800000] [--mbit 100] [--milliseconds 50] [--repeat 3]
    python benchmarks/slow_link.py --namespaces ...

Every site gets a line of its own: so many Mbit/s up and as many down, and half the delay each way. Each peer dials
through an HTTP CONNECT proxy of its own that holds bytes back, which works without root. TCP itself runs on loopback,
so that its slow start is not part of it. With ``--namespaces`` (as root) each peer is on a machine of its own instead,
a network namespace whose interface the kernel limits (``tc ... tbf``): the rate is real, but there is no delay, so that
no round trips are allowed for, and only the long vector is measured. Beside it bare TLS sockets send the bytes of an
optimal all-reduce all at once: what TCP itself makes of such a line.

For each protocol three rows: a vector so short that only round trips count, back to back and with four round trips of
training before each average, in which the log lets it begin; and the vector asked for, with training, whose time is
compared with 1.25 x bytes/bandwidth + 10 round trips.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import numpy as np

from network import averaging_of, run

SHORT = 1000


class Line:
    """One direction of a site's line: bytes leave it one after the other."""

    def __init__(self, rate: float) -> None:
        self._rate, self._free = rate, 0.0

    def send(self, count: int, at: float) -> float:
        """Return when the last of so many bytes has left, if the first could not before some time."""
        self._free = max(self._free, at) + count / self._rate
        return self._free


class Shaper:
    """The lines of all sites, as HTTP CONNECT proxies in a thread of their own.

    Parameters
    ----------
    rate, delay
        Bytes per second of each line and direction; seconds that bytes take one way.
    """

    def __init__(self, peers: int, rate: float, delay: float) -> None:
        self.up, self.down = [Line(rate) for _ in range(peers)], [Line(rate) for _ in range(peers)]
        self.delay, self.most = delay, int(4 * rate * delay) + (1 << 16)
        self.sites: dict[int, int] = {}
        self.ports: list[int] = []
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._listen(peers), self._loop).result(10)

    async def _listen(self, peers: int) -> None:
        for k in range(peers):
            server = await asyncio.start_server(lambda r, w, k=k: self._serve(k, r, w), "127.0.0.1", 0)
            self.ports.append(server.sockets[0].getsockname()[1])

    async def _serve(self, site: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join a peer that dials with the one it asks for."""
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            port = int(request.split(b" ")[1].rpartition(b":")[2])
            there = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            other = self.sites[port]
            await asyncio.gather(self._move(reader, there[1], site, other), self._move(there[0], writer, other, site))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async def _move(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int, target: int) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        waiting, room = 0, asyncio.Event()

        async def deliver() -> None:
            nonlocal waiting
            while True:
                at, data = await queue.get()
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                writer.write(data)
                if not data:
                    return writer.close()
                await writer.drain()
                waiting -= len(data)
                room.set()

        task = asyncio.create_task(deliver())
        data = b"?"
        while data:
            data = await reader.read(1 << 15)
            left = self.up[source].send(len(data), time.monotonic())
            arrived = self.down[target].send(len(data), left - len(data) / (1 << 30))
            queue.put_nowait((arrived + self.delay, data))
            waiting += len(data)
            while waiting > self.most and data:
                room.clear()
                await room.wait()
        await task


@contextmanager
def namespaces(peers: int, mbit: float) -> Iterator[list[tuple[str, str]]]:
    """Give network namespaces on one switch, each with a line of so many Mbit/s up and down, and their addresses."""
    prefix, made = f"slow{os.getpid() % 100_000}", list[str]()

    def do(*words: str) -> None:
        subprocess.run(words, check=True, timeout=10)  # noqa: S603

    def limit(space: str, port: str) -> None:
        # the burst is what 2 ms let through
        burst = f"{max(16, int(mbit / 4))}kb"
        limits = ("rate", f"{mbit:g}mbit", "burst", burst, "latency", "100ms")
        do("tc", "-n", space, "qdisc", "add", "dev", port, "root", "tbf", *limits)

    try:
        for name in (f"{prefix}-hub", *(f"{prefix}-{k}" for k in range(peers))):
            do("ip", "netns", "add", name)
            made.append(name)
        hub = made[0]
        do("ip", "-n", hub, "link", "add", "switch", "type", "bridge")
        do("ip", "-n", hub, "link", "set", "switch", "up")
        for k, name in enumerate(made[1:]):
            do("ip", "-n", hub, "link", "add", f"port{k}", "type", "veth", "peer", "name", "eth0", "netns", name)
            do("ip", "-n", hub, "link", "set", f"port{k}", "master", "switch", "up")
            do("ip", "-n", name, "addr", "add", f"10.214.0.{k + 1}/24", "dev", "eth0")
            for port in ("eth0", "lo"):
                do("ip", "-n", name, "link", "set", port, "up")
            limit(hub, f"port{k}")
            limit(name, "eth0")
        yield [(name, f"10.214.0.{k + 1}") for k, name in enumerate(made[1:])]
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, timeout=10)  # noqa: S603, S607


def busiest(job: dict[str, Any]) -> float:
    """Return the bytes of the busiest line, phase by phase: nobody opens a sum before all have shared.

    Peers are not equally busy in each phase, so that this is more than the bytes of the busiest peer.
    """
    from securedfl.network.data.routes import find_routes

    averaging, found = averaging_of(job), []
    for turn in range(averaging.design.gap):
        routes = find_routes(averaging.at(turn), job["peers"], job["size"], "float32")
        first = averaging.protocol.commit_step
        lines = [[sum(spec.nbytes for spec in step.values()) for step in one] for one in routes]
        for sender in range(job["peers"]):
            columns = zip_longest(*([step.get(sender) for step in one] for one in routes))
            lines.append([sum(spec.nbytes for spec in column if spec is not None) for column in columns])
        found.append(max(sum(line[:first]) for line in lines) + max(sum(line[first:]) for line in lines))
    return float(np.mean(found))


def seconds(results: list[dict[str, Any]]) -> float:
    """Return how long an average took, from when the last one began: the median."""
    spans = np.array([result["spans"] for result in results])
    return float(np.median(spans[..., 1].max(axis=0) - spans[..., 0].max(axis=0)))


def bare(args: argparse.Namespace) -> dict[str, Any]:
    """Move the bytes of an optimal all-reduce between namespaces, by bare sockets with TLS."""
    each = 8 * args.size // args.peers
    with namespaces(args.peers, args.mbit) as machines:
        job = {"peers": args.peers, "repeat": args.repeat, "insecure": False, "bytes": each, "machines": machines}
        took = seconds(run("bare", job))
    alone = each * (args.peers - 1) / (args.mbit * 1e6 / 8)
    return {"protocol": "bare TLS sockets", "seconds": took, "seconds_of_bytes": alone, "times_bytes": took / alone}


def measure(protocol: str, size: int, trips: int, args: argparse.Namespace) -> dict[str, Any]:
    """Run the averages of one row, and return its numbers."""
    rate, trip = args.mbit * 1e6 / 8, args.milliseconds / 1e3
    job = {"peers": args.peers, "size": size, "repeat": args.repeat, "protocol": protocol, "train": trips * trip}
    if args.namespaces:
        with namespaces(args.peers, args.mbit) as machines:
            results = run("peer", {**job, "machines": machines})
    else:
        shaper = Shaper(args.peers, rate, trip / 2)
        results = run(
            "peer",
            {**job, "proxies": shaper.ports},
            lambda ports: shaper.sites.update({port: k for k, port in enumerate(ports)}),
        )
    took = seconds(results)
    most = max(max(result["sent"], result["received"]) for result in results) / args.repeat
    allowed = 1.25 * most / rate + (0 if args.namespaces else 10 * trip)
    return {
        "protocol": protocol,
        "size": size,
        "round_trips_of_training": trips,
        "seconds": took,
        "round_trips": took / trip,
        "bytes": most,
        "seconds_of_bytes": most / rate,
        "seconds_of_phases": busiest(job) / rate,
        "allowed": allowed,
        "share_of_allowed": took / allowed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--size", type=int, default=2_800_000)
    parser.add_argument("--mbit", type=float, default=100.0)
    parser.add_argument("--milliseconds", type=float, default=50.0, help="of a round trip")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--namespaces", action="store_true", help="limited by the kernel, without delay; needs root")
    parser.add_argument("--only", default="", help="one protocol")
    parser.add_argument("--json", action="store_true", help="print JSON, and the table on standard error")
    args = parser.parse_args()
    table = sys.stderr if args.json else sys.stdout
    print(f"{args.peers} sites, {args.mbit:g} Mbit/s, {args.milliseconds:g} ms, median of {args.repeat}", file=table)
    rows = []
    if args.namespaces and not args.only:
        rows.append(row := bare(args))
        print(
            f"{row['protocol']}: {row['seconds']:.2f} s; bytes alone {row['seconds_of_bytes']:.2f} s: "
            f"{row['times_bytes']:.2f} times as long",
            file=table,
            flush=True,
        )
    for protocol in [args.only] if args.only else ["shares", "resilient"]:
        for size, trips in ((SHORT, 0), (SHORT, 4), (args.size, 4))[2 if args.namespaces else 0 :]:
            row = measure(protocol, size, trips, args)
            rows.append(row)
            print(
                f"{protocol:<10} {size:>11,} float32, training {trips} trips: {row['seconds']:6.2f} s = "
                f"{row['round_trips']:5.1f} trips; bytes alone {row['seconds_of_bytes']:5.2f} s, "
                f"phase by phase {row['seconds_of_phases']:5.2f} s; "
                f"{row['share_of_allowed']:4.0%} of what is allowed",
                file=table,
                flush=True,
            )
    if args.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
