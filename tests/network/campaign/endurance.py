"""Many rounds of a tiny model, or many peers: ``python -m tests.network.campaign.endurance --peers 3 --rounds 1000``.

Prints memory, descriptors, threads and the size of the state folder of every peer, as they are along the way.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.network.peer_processes import Federation, Process


def look(process: Process, folder: Path) -> tuple[int, int, int, int]:
    """Return a process' memory in KiB, descriptors, threads, and KiB of its state folder."""
    status = Path(f"/proc/{process.popen.pid}/status").read_text()
    memory, threads = (int(re.search(rf"{key}:\s+(\d+)", status)[1]) for key in ("VmRSS", "Threads"))
    state = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return memory, len(os.listdir(f"/proc/{process.popen.pid}/fd")), threads, state // 1024


def main() -> int:
    """Run them, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--protocol", default="shares")
    parser.add_argument("--heartbeat", type=float, default=1.0, help="seconds")
    parser.add_argument("--looks", type=int, default=5, help="how often to look")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="endurance-") as folder:
        settings = {"protocol": given.protocol, "group_size": 2, "rounds": given.rounds, "allow_exposure": True}
        made = Federation(
            Path(folder), given.peers, **settings, deadlines={"average": 120, "heartbeat": given.heartbeat}
        )
        processes = made.start_all()
        try:
            print("| round | memory, MiB | descriptors | threads | state folder, KiB |\n|---:|---:|---:|---:|---:|")
            for turn in range(1, given.looks + 1):
                round = given.rounds * turn // (given.looks + 1)
                seen = []
                for name, process in zip(made.names, processes, strict=True):
                    process.wait_for(3600, event="round", round=round)
                    seen.append(look(process, made.folder / f"out-{name}" / "state"))
                memory, descriptors, threads, state = (max(values) for values in zip(*seen, strict=True))
                print(f"| {round} | {memory / 1024:.1f} | {descriptors} | {threads} | {state} |", flush=True)
            codes = [process.end(3600) for process in processes]
        finally:
            for process in processes:
                process.close()
        models = [made.model(k) for k in range(given.peers)]
        alike = all(np.array_equal(model, models[0]) for model in models)
    seconds = time.monotonic() - began
    what = f"{given.peers} peers, {given.rounds} rounds in {seconds:.0f} s"
    print(f"\n{what}; exit codes {set(codes)}; models alike: {alike}")
    return int(not alike or set(codes) != {0})


if __name__ == "__main__":
    sys.exit(main())
