"""Averages over the network: time, bytes and memory, beside gloo's all_reduce of the same vector in the same run.

    python benchmarks/network.py [--peers 9] [--size 11200000] [--repeat 3]

One process per peer on loopback: `shares` with strength 2 and `grouped`, over mutual TLS 1.3 and (to see what TLS
itself costs) without it, and torch.distributed's gloo all_reduce, which has neither TLS nor privacy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np


def peer(folder: Path, me: int) -> dict[str, object]:
    """Run one peer: a first average to warm up, then as many as asked for."""
    from securedfl.designs import best
    from securedfl.protocols import by_name
    from securedfl.transport.network.certificates import KeyFiles
    from securedfl.transport.network.driver import CHUNK, SLICED_CHUNK
    from securedfl.transport.network.endpoint import Endpoint
    from securedfl.transport.network.rules import Rules
    from securedfl.transport.network.session import Session
    from securedfl.transport.network.tls import Member

    job = json.loads((folder / "job.json").read_text())
    n, size, protocol = job["peers"], job["size"], job["protocol"]
    options = {"strength": 2} if protocol == "shares" else {}
    design = best(n, 3, 0)
    keys = folder / "keys"
    files = None if job["insecure"] else KeyFiles(keys / f"p{me}.key", keys / f"p{me}.crt", keys / "ca.crt")
    rules = Rules(
        protocol=lambda _n, round: partial(by_name(protocol), design=design, round=round, **options),
        size=size,
        dtype="float32",
        commit_step=int(protocol == "shares"),
        least=n,
        chunk=SLICED_CHUNK if protocol == "shares" else CHUNK,
    )
    endpoint = Endpoint([Member(*m) for m in job["roster"]], me, files, insecure=job["insecure"])
    session = Session(endpoint, b"benchmark-run-16", rules, identity={"benchmark": "1"}, silence=60.0)
    session.join()
    vector = np.random.default_rng(me).standard_normal(size, dtype=np.float32)
    vector *= 0.05
    before = resident() - vector.nbytes
    spans, phases = [], []
    for round in range(job["repeat"] + 1):
        began = time.monotonic()
        outcome = session.average(vector, round)
        spans.append((began, time.monotonic()))
        phases.append(outcome.waited)
        if round == 0:
            sent, wire = endpoint.bytes_out, loopback_bytes()
    result = {
        "spans": spans,
        "waited": phases,
        "sent": endpoint.bytes_out - sent,
        "wire": (wire, loopback_bytes()),
        "memory": (resident("VmHWM") - before) / vector.nbytes,  # the vector itself included
        "cpu": time.process_time(),
    }
    session.board.wait(lambda: all(session.board.status(p).finished == job["repeat"] for p in range(n)), 60)
    time.sleep(0.5)
    session.close()
    return result


def gloo(folder: Path, me: int) -> dict[str, object]:
    """Run one process of gloo's all_reduce."""
    import torch
    import torch.distributed as dist

    job = json.loads((folder / "job.json").read_text())
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), job["peers"])
    dist.init_process_group("gloo", store=store, rank=me, world_size=job["peers"])
    vector = torch.from_numpy(np.random.default_rng(me).normal(0, 0.05, job["size"]).astype(np.float32))
    spans = []
    for _ in range(job["repeat"] + 1):
        copy = vector.clone()
        dist.barrier()
        began = time.monotonic()
        dist.all_reduce(copy)
        spans.append((began, time.monotonic()))
    dist.barrier()
    dist.destroy_process_group()
    return {"spans": spans}


def resident(what: str = "VmRSS") -> int:
    """Return this process's memory now, or at its highest (VmHWM), in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def loopback_bytes() -> int:
    """Return what has gone over the loopback interface since the machine started, headers included."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[0])
    return 0


def run(kind: str, job: dict[str, object]) -> list[dict[str, object]]:
    """Start all processes of one measurement and collect what they report."""
    from securedfl.federation.peer_up import _ports
    from securedfl.transport.network import certificates

    peers = int(str(job["peers"]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates.create_authority(folder / "keys")
        files = [certificates.issue(folder / "keys", f"p{k}") for k in range(peers)]
        prints = [certificates.describe(file.certificate).fingerprint for file in files]
        roster = [(f"p{k}", "127.0.0.1", port, prints[k]) for k, port in enumerate(_ports(peers))]
        (folder / "job.json").write_text(json.dumps({**job, "roster": roster}))
        command = [sys.executable, __file__, "--role", kind, "--folder", name]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        processes = [
            subprocess.Popen([*command, "--me", str(k)], stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603
            for k in range(peers)
        ]
        outputs = [process.communicate(timeout=600)[0] for process in processes]
        return [json.loads(output.splitlines()[-1]) for output in outputs]


def seconds(results: list[dict[str, object]]) -> float:
    """Return the median over averages, without the first, of the time from the first to begin to the last to end."""
    spans = np.array([result["spans"] for result in results])  # peer, average, (begin, end)
    return float(np.median(spans[:, 1:, 1].max(axis=0) - spans[:, 1:, 0].max(axis=0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--size", type=int, default=11_200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--role", choices=["peer", "gloo"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--me", type=int)
    args = parser.parse_args()
    if args.role:
        print(json.dumps((peer if args.role == "peer" else gloo)(args.folder, args.me)))
        return
    job = {
        "peers": args.peers,
        "size": args.size,
        "repeat": args.repeat,
        "insecure": False,
        "protocol": "shares",
    }
    print(f"{args.peers} processes, {args.size:,} float32, {os.cpu_count()} cores, median of {args.repeat}")
    base = seconds(run("gloo", job))
    print(f"gloo all_reduce, no TLS          {base:7.2f} s")
    for protocol in ("shares", "grouped"):
        for insecure in (False, True):
            results = run("peer", {**job, "insecure": insecure, "protocol": protocol})
            took = seconds(results)
            needed = sum(int(str(result["sent"])) for result in results)
            wire = np.array([result["wire"] for result in results])
            moved = wire[:, 1].max() - wire[:, 0].max()
            memory = max(float(str(result["memory"])) for result in results)
            name = f"{protocol}, {'no TLS' if insecure else 'mutual TLS 1.3'}"
            each = needed / args.peers / args.repeat / 1e6
            print(
                f"{name:<32} {took:7.2f} s  {took / base:5.2f} x gloo  sent per peer {each:6.1f} MB  "
                f"on the wire {moved / needed - 1:+.1%}  memory {memory:.1f} x vector"
            )


if __name__ == "__main__":
    main()
