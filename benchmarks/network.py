"""Averages over the network: time, bytes and memory, beside gloo's all_reduce of the same vector in the same run.

    python benchmarks/network.py [--peers 9] [--size 11200000] [--repeat 3] [--only "shares, mutual TLS"] [--json]

One process per peer on loopback: the protocols over mutual TLS 1.3, votes and results on disk before they count, as
`securedfl peer` does it; the same of peers that only dial out, all of whose pairs are joined by one relay;
torch.distributed's gloo all_reduce, which has neither TLS nor privacy; and, to see what the wire itself costs, as many
bytes as `shares` needs through bare sockets.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rivals.common import loopback_bytes

OPTIONS = {
    "shares": {"strength": 2},
    "resilient": {"collusion": 1},
}  # for nine peers, both are two shares per peer


def averaging_of(job: dict[str, Any]) -> Any:
    """Return the protocol of a job on a design for its peers."""
    from securedfl.designs import best
    from securedfl.protocols import by_name

    design = best(job["peers"], 3, 0)
    # two shares per peer need two partitions
    design = design if design.gap >= 2 else best(job["peers"], 2, 0)
    return by_name(job["protocol"]).on(design, **job.get("options", OPTIONS.get(job["protocol"], {})))


def peer_settings(folder: Path, me: int, job: dict[str, Any]) -> tuple[Any, int]:
    """Return what one peer is, and how many partitions its design has."""
    from securedfl.network.core.entries import Line, Settings
    from securedfl.network.core.state import Rules, State
    from securedfl.network.data.averages import Averages
    from securedfl.network.data.driver import CHUNK, SLICED_CHUNK
    from securedfl.network.progress import PeerSettings
    from securedfl.network.wire.keys import KeyFiles
    from securedfl.network.wire.values import Endpoint

    n, size, averaging = job["peers"], job["size"], averaging_of(job)
    design, row, turn = averaging.design, averaging.protocol, lru_cache(averaging.at)
    keys, last = folder / "keys", design.gap + job["repeat"]
    settings = PeerSettings(
        name=f"p{me}",
        number=me,
        files=KeyFiles(keys / f"p{me}.key", keys / f"p{me}.crt", keys / "ca.crt"),
        folder=folder / f"state-{me}",
        genesis=State(
            "benchmark",
            tuple(
                Line(k, name, "" if job.get("relays") else f"{host}:{port}", bytes.fromhex(key))
                for k, (name, host, port, key) in enumerate(job["roster"])
            ),
            Settings(last, heartbeat=5.0),
        ),
        rules=Rules(can_lose=row.can_lose, least=n),
        averages=Averages(
            protocol=lambda _n, round: turn(round % design.gap),
            size=size,
            dtype="float32",
            result_size=size,
            commit_step=row.commit_step,
            chunk=SLICED_CHUNK if row.sliced else CHUNK,
        ),
        listen=None if job.get("relays") else f"{job['roster'][me][1]}:{job['roster'][me][2]}",
        relays=tuple(Endpoint(*row) for row in job.get("relays", [])),
        proxy=f"http://127.0.0.1:{job['proxies'][me]}" if "proxies" in job else None,
    )
    return settings, design.gap


def peer(folder: Path, me: int, job: dict[str, Any]) -> dict[str, object]:
    """Run one peer: an average with every partition first, to warm up, then as many as asked for."""
    from securedfl.network.data.memory import share_one_heap
    from securedfl.network.peer import Peer

    share_one_heap()
    settings, partitions = peer_settings(folder, me, job)
    size, last = job["size"], partitions + job["repeat"]
    vector = np.random.default_rng(me).standard_normal(size, dtype=np.float32)
    vector *= 0.05
    with Peer(settings) as running:
        running.begin()
        before, spans = resident() - vector.nbytes, []
        for round in range(last):
            if round == partitions:
                (got, sent), wire, before_it = running.links.traffic, loopback_bytes(), processor_times()
            time.sleep(job.get("train", 0.0))
            began = time.monotonic()
            running.average(vector, round)
            spans.append((began, time.monotonic()))
        result = {
            "spans": spans[partitions:],
            "sent": running.links.traffic[1] - sent,
            "received": running.links.traffic[0] - got,
            "wire": (wire, loopback_bytes()),
            # the vector itself included
            "memory": (resident("VmHWM") - before) / vector.nbytes,
            **{what: (after - before_it[what]) / job["repeat"] for what, after in processor_times().items()},
        }
        running.linger(60)
    return result


def processor_times() -> dict[str, float]:
    """Return the seconds of processor that this process used so far: all, in the kernel, moving bytes, in the log."""
    usage, ticks = resource.getrusage(resource.RUSAGE_SELF), os.sysconf("SC_CLK_TCK")
    found = {"processor": usage.ru_utime + usage.ru_stime, "kernel": usage.ru_stime, "links": 0.0, "log": 0.0}
    for thread in threading.enumerate():
        what = (
            "links" if thread.name.startswith("securedfl-links") else "log" if thread.name == "securedfl-peer" else ""
        )
        if what:
            numbers = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
            found[what] += (int(numbers[11]) + int(numbers[12])) / ticks
    return found


def gloo(folder: Path, me: int, job: dict[str, Any]) -> dict[str, object]:
    """Run one process of gloo's all_reduce."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), job["peers"])
    dist.init_process_group("gloo", store=store, rank=me, world_size=job["peers"])
    vector = torch.from_numpy(np.random.default_rng(me).standard_normal(job["size"], dtype=np.float32))
    dist.all_reduce(vector.clone())
    spans, processor = [], time.process_time()
    for _ in range(job["repeat"]):
        copy = vector.clone()
        dist.barrier()
        began = time.monotonic()
        dist.all_reduce(copy)
        spans.append((began, time.monotonic()))
    used = time.process_time() - processor
    dist.barrier()
    dist.destroy_process_group()
    return {"spans": spans, "processor": used / job["repeat"]}


def bare(folder: Path, me: int, job: dict[str, Any]) -> dict[str, object]:
    """Run one process of `wire`."""
    from securedfl.network.data.memory import share_one_heap
    from wire import exchange

    share_one_heap()
    return exchange(folder, me, job)


def relay(folder: Path, me: int, job: dict[str, Any]) -> dict[str, object]:
    """Run the relay until it is killed."""
    from links import relay as serve

    return serve(folder, me, job)


ROLES = {"peer": peer, "gloo": gloo, "bare": bare, "relay": relay}


def resident(what: str = "VmRSS") -> int:
    """Return this process's memory now, or at its highest (VmHWM), in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def make_roster(folder: Path, peers: int, *others: str) -> list[tuple[str, str, int, str]]:
    """Make everybody's keys; return who listens where, and by which key they are known: the peers, then others."""
    from securedfl.federation.founding.files import free_ports
    from securedfl.network.wire import keys as certificates

    certificates.create_authority(folder / "keys")
    names = [*(f"p{k}" for k in range(peers)), *others]
    files = [certificates.issue(folder / "keys", name) for name in names]
    prints = [certificates.describe(file.certificate).fingerprint for file in files]
    return [(names[k], "127.0.0.1", port, prints[k]) for k, port in enumerate(free_ports(len(names)))]


def run(
    role: str, job: dict[str, Any], on_ports: Callable[[list[int]], None] = lambda _ports: None
) -> list[dict[str, Any]]:
    """Start all processes of one measurement and collect what they report; ``on_ports`` is told where they listen.

    With ``machines`` in the job, each peer runs in the network namespace and at the address that it has there.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, peers = Path(name), job["peers"]
        everybody = make_roster(folder, peers, *["relay"] * bool(job.get("relayed")))
        roster, relays = everybody[:peers], everybody[peers:]
        machines = job.get("machines") or [[None, "127.0.0.1"]] * peers
        roster = [(name, host, port, key) for (name, _, port, key), (_, host) in zip(roster, machines, strict=True)]
        inside = [["ip", "netns", "exec", machine] if machine else [] for machine, _ in machines]
        on_ports([port for _, _, port, _ in roster])
        (folder / "job.json").write_text(json.dumps({**job, "roster": roster, "relays": relays}))
        command = [sys.executable, __file__, "--folder", name, "--role"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        lines = [[*command, "relay"] for _ in relays]
        lines += [[*inside[k], *command, role, "--me", str(k)] for k in range(peers)]
        processes: list[subprocess.Popen[str]] = []
        try:
            for line in lines:
                processes.append(subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment))  # noqa: S603
            of_peers = processes[len(relays) :]
            outputs = [process.communicate(timeout=900)[0] for process in of_peers]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if any(process.returncode for process in of_peers):
            raise SystemExit(f"a process of {role} failed; see above")
        return [json.loads(output.splitlines()[-1]) for output in outputs]


def measure(name: str, role: str, job: dict[str, Any], base: float) -> dict[str, Any]:
    """Run one measurement, print its row and return it."""
    results = run(role, job)
    spans = np.array([result["spans"] for result in results])  # peer, average, (begin, end)
    took = float(np.median(spans[..., 1].max(axis=0) - spans[..., 0].max(axis=0)))
    row = {"name": name, "seconds": took, "times_gloo": took / (base or took)}
    row["processor_seconds_per_peer"] = float(np.mean([result["processor"] for result in results]))
    text = f"{name:<34} {took:6.2f} s {row['times_gloo']:6.2f} x gloo"
    text += f"  processor per peer {row['processor_seconds_per_peer']:.3f} s"
    if role == "peer":
        parts = {what: float(np.mean([result[what] for result in results])) for what in ("links", "log", "kernel")}
        row |= {f"{what}_seconds_per_peer": seconds for what, seconds in parts.items()}
        text += f" (links {parts['links']:.3f}, log {parts['log']:.3f}; in the kernel {parts['kernel']:.3f})"
        needed = sum(result["sent"] for result in results)
        wire = np.array([result["wire"] for result in results])
        row["sent_bytes_per_peer"] = needed / job["peers"] / job["repeat"]
        row["overhead_on_the_wire"] = float((wire[:, 1].max() - wire[:, 0].max()) / needed - 1)
        row["memory_per_vector"] = max(result["memory"] for result in results)
        text += f"  sent per peer {row['sent_bytes_per_peer'] / 1e6:6.1f} MB"
        text += f"  on the wire {row['overhead_on_the_wire']:+.1%}  memory {row['memory_per_vector']:.1f} x vector"
    print(text, file=sys.stderr if job["json"] else sys.stdout, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--size", type=int, default=11_200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="beside gloo only rows with this in their names")
    parser.add_argument("--json", action="store_true", help="print JSON, and the table on standard error")
    parser.add_argument("--role", choices=list(ROLES), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--me", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        job = json.loads((args.folder / "job.json").read_text())
        print(json.dumps(ROLES[args.role](args.folder, args.me, job)), flush=True)
        os._exit(0)
    job = {"peers": args.peers, "size": args.size, "repeat": args.repeat, "json": args.json}
    print(
        f"{args.peers} processes, {args.size:,} float32, {os.cpu_count()} cores, median of {args.repeat}",
        file=sys.stderr if args.json else sys.stdout,
    )
    rows = [measure("gloo all_reduce, no TLS", "gloo", job, 0.0)]
    for name, role, more in measurements(args.peers, args.size):
        if args.only in name:
            rows.append(measure(name, role, job | more, rows[0]["seconds"]))
    if args.json:
        print(json.dumps(rows, indent=1))


def measurements(peers: int, size: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give the name, the role and the settings of everything that is measured beside gloo."""
    for name, insecure in {"no TLS": True, "mutual TLS 1.3": False}.items():
        # of an optimal all-reduce: every segment out and back
        yield f"bare socket, {name}", "bare", {"insecure": insecure, "bytes": 8 * size // peers}
    for protocol in ("shares", "resilient", "grouped"):
        yield f"{protocol}, mutual TLS 1.3, on disk", "peer", {"protocol": protocol}
    yield "shares, through a relay, the same", "peer", {"protocol": "shares", "relayed": True}
    for protocol, options in OPTIONS.items():
        narrow = {"protocol": protocol, "options": {**options, "bits": 16, "range": 0.5}}
        yield f"{protocol}, 16 bits, the same", "peer", narrow


if __name__ == "__main__":
    main()
