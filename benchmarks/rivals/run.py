"""Rivals and ours on the same vectors, one after the other in the same run; tables for docs/evidence/comparison.md.

    python benchmarks/rivals/run.py --smoke               # every script at a small size: does it work here?
    python benchmarks/rivals/run.py --write               # the tables of the page, with what this machine measured
    python benchmarks/rivals/run.py --only hivemind       # one system, beside gloo
    python benchmarks/rivals/run.py --consortium --help   # a consortium's bad hour instead of one average

Every script runs in an environment of its own in .venv-rivals/, which is made the first time (`--install` makes all
of them and stops), and, where the system allows it, in processes and a network of its own, so that processor time,
memory and bytes are those of the rival and of nobody else. In every turn all systems run once, gloo first; times are
told as ratios to gloo of the same turn, because machines are noisy and a ratio is less so.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "evidence" / "comparison.md"
OWN = "SECUREDFL_RIVALS_OWN_NAMESPACES"
PATIENCE = 900
TELLING = 500_000
"""Numbers in a vector from which on bytes and not latencies decide."""

ALONE = ("--net", "--pid", "--fork", "--mount-proc", "--kill-child")


@dataclass(frozen=True)
class Rival:
    """A system: its script with options, its environment, where it ran, and what others learn in it, by argument."""

    name: str
    script: str
    environment: str
    place: str
    one: str
    two: str


RIVALS = (
    Rival(
        *("gloo all_reduce", "gloo_all_reduce.py", "", "processes, no TLS"),
        "parts of its neighbours' vectors and partial sums, in the clear",
        "as one",
    ),
    Rival(
        *("hivemind", "hivemind_average.py", "hivemind", "processes, libp2p"),
        "its part of everybody's vector, in the clear",
        "two parts of everybody's",
    ),
    Rival(
        *("p2pfl", "p2pfl_average.py", "p2pfl", "one process, gRPC"),
        "every model that is gossiped to it, in the clear",
        "as one",
    ),
    Rival(
        *("NVFlare swarm", "nvflare_swarm.py", "nvflare", "its simulator"),
        "everybody's model in the rounds in which it aggregates",
        "as one, in twice as many rounds",
    ),
    Rival(
        *("Flower SecAgg+", "flower_secagg.py", "flower", "its simulation (Ray)"),
        "the total; so does the server",
        "the total, also with the server, as long as fewer than the threshold (3 of 5 shares) collude with it",
    ),
    Rival(
        *("TenSEAL CKKS", "tenseal_ckks.py", "tenseal", "one process"),
        "the total; who holds the key opens whatever it gets",
        "everything, if they are the key holder and who adds",
    ),
    Rival(
        *("pairwise masks, in memory", "pairwise_masks.py --protocol pairwise", "", "one process"),
        "the total",
        "the total (any n - 2)",
    ),
    Rival(
        *("pfl-research", "pfl_simulation.py", "pfl", "its simulation"),
        "a simulation: nothing is hidden",
        "as one",
    ),
    Rival(
        *("ours, grouped, in memory", "pairwise_masks.py --protocol grouped", "", "one process"),
        "the total",
        "somebody's vector, for 18 of the 36 pairs of nine peers",
    ),
    Rival(
        *("ours, shares, in memory", "pairwise_masks.py --protocol shares", "", "one process"),
        "the total",
        "the total",
    ),
    Rival(
        *("**ours, grouped**", "ours_network.py --protocol grouped", "", "processes, mutual TLS"),
        "the total",
        "somebody's vector, for 18 of the 36 pairs of nine peers",
    ),
    Rival(
        *("**ours, shares**", "ours_network.py --protocol shares", "", "processes, mutual TLS"),
        "the total",
        "the total",
    ),
    Rival(
        *("**ours, resilient**", "ours_network.py --protocol resilient", "", "processes, mutual TLS"),
        "the total",
        "the total",
    ),
)
SITES = Rival("Opacus at each site", "opacus_sites.py", "", "one process", "", "")


def environment(name: str) -> Path:
    """Return the Python of an environment, which is made if there is none; without a name, this one."""
    if not name:
        return Path(sys.executable)
    folder = ROOT / ".venv-rivals" / name
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"Making the environment of {name}", file=sys.stderr)
        wanted = HERE / "environments" / f"{name}.txt"
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if "torch==" in wanted.read_text():
            # the pinned build first, so that nothing pulls another one
            subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), "torch"], check=True)
        subprocess.run([*pip, "--requirement", str(wanted)], check=True)
    return python


def name_spaces() -> list[str]:
    """Return the command that gives a script processes and a network of its own; nothing where that is not allowed."""
    for wish in (["unshare", *ALONE], ["unshare", "-r", *ALONE]):
        try:
            if subprocess.run([*wish, "true"], capture_output=True, check=False).returncode == 0:
                return wish
        except OSError:
            break
    return []


def measure(rival: Rival, options: list[str], apart: list[str]) -> dict[str, Any]:
    """Run a script and return what it printed last; what failed says so."""
    script, *own = rival.script.split()
    told = ["python", f"benchmarks/rivals/{script}", *own, *options]
    result: dict[str, Any] = {"system": rival.name, "command": shlex.join(told)}
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    variables = {**os.environ, **({OWN: "1"} if apart else {})} | ({} if rival.environment else {"PYTHONPATH": path})
    try:
        command = [*apart, str(environment(rival.environment)), str(HERE / script), *own, *options]
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=variables,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        last = run.stdout.strip().splitlines()[-1:] or [""]
        if run.returncode or not last[0].startswith("{"):
            end = (run.stderr.strip() or run.stdout.strip()).splitlines()[-1:] or ["no output"]
            return {**result, "failed": end[0][:300]}
        return {**result, **json.loads(last[0])}
    except subprocess.TimeoutExpired:
        return {**result, "failed": f"not done after {PATIENCE} s"}
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        return {**result, "failed": str(error)[:300]}


def ratios(found: list[list[dict[str, Any]]], index: int, key: str) -> str:
    """Return how many times gloo's a system's number is, turn by turn: the median, and the range of several."""
    each = [turn[index][key] / turn[0][key] for turn in found if turn[index].get(key) is not None and turn[0].get(key)]
    if not each:
        return "–"
    middle = f"{statistics.median(each):.3g}"
    return middle if len(each) == 1 else f"{middle} ({min(each):.3g} to {max(each):.3g})"


def middle(found: list[list[dict[str, Any]]], index: int, key: str, unit: float, form: str = ".3g") -> str:
    """Return the median of a number over the turns, in a unit."""
    each = [turn[index][key] / unit for turn in found if turn[index].get(key) is not None]
    return format(statistics.median(each), form) if each else "–"


def heading(found: list[list[dict[str, Any]]], size: int, load: float) -> str:
    """Return what was measured where, and what to think of it."""
    cores, peers = os.cpu_count() or 1, found[0][0].get("peers")
    text = f"{peers} peers, {size:,} float32 each, turns: {len(found)}, load {load:.1f} on {cores} cores before."
    if size < TELLING:
        text += " **So small a size measures latencies**, and processor times are below what the clock can tell."
    if load > cores + 1:
        text += " **The machine was busy with other work**: take the ratios as rough, and run it again on a quiet one."
    return text


def table(found: list[list[dict[str, Any]]], rivals: list[Rival], size: int) -> list[str]:
    """Return the table of all systems."""
    columns = ["system", "where", "time, x gloo", "processor, x gloo", "sent per peer, x vector"]
    columns += ["memory per peer, x vector", "largest error", "one peer learns", "two learn"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for index, rival in enumerate(rivals):
        failed = [turn[index]["failed"] for turn in found if "failed" in turn[index]]
        if len(failed) == len(found):
            cells = [rival.name, rival.place, f"failed: {failed[0].replace('|', '/')}", "", "", "", ""]
        else:
            cells = [
                *(rival.name, rival.place),
                ratios(found, index, "seconds"),
                ratios(found, index, "processor_seconds_per_peer"),
                middle(found, index, "bytes_per_peer", 4 * size),
                middle(found, index, "memory_per_peer_in_vectors", 1),
                middle(found, index, "largest_error", 1, ".1e"),
            ]
        lines.append("| " + " | ".join([*cells, rival.one, rival.two]) + " |")
    return lines


def noise(sites: dict[str, Any]) -> list[str]:
    """Return what Opacus at each site gives, as a table."""
    if "failed" in sites:
        return [f"Opacus failed: {sites['failed']}"]
    return [
        "| | noise in the mean, in parts of the clip | a step, x a plain one |",
        "|---|---|---|",
        f"| Opacus at each site | {sites['noise_in_mean_alone']:.3f} | {sites['times_plain_step']:.1f} |",
        f"| noise that only the total carries (ours), 2 colluders | {sites['noise_in_mean_together']:.3f} | |",
    ]


def put(page: Path, name: str, lines: list[str]) -> None:
    """Replace what stands between two marks of a page."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{after}", encoding="utf-8")


def show(record: dict[str, Any], *, write: bool) -> None:
    """Print the tables of what was measured; write them, all numbers and the figure too, if wanted."""
    found, known = record["turns"], {rival.name: rival for rival in RIVALS}
    rivals, size = [known[one["system"]] for one in found[0]], found[0][0]["size"]
    lines = [heading(found, size, record["load"][0]), "", *table(found, rivals, size)]
    print("\n".join([*lines, "", *noise(record["sites"])]))
    if not write:
        return
    (RESULTS / "rivals.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    flat = [{"turn": n, **{k: v for k, v in one.items() if k != "versions"}} for n, t in enumerate(found) for one in t]
    with (RESULTS / "rivals.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for one in flat for key in one)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
    figures.averages(found, {rival.name: rival.one for rival in rivals}, size, RESULTS / "rivals.svg")
    put(PAGE, "rivals", ["", "![Time, processor time, bytes and error](../results/rivals.svg)", "", *lines, ""])
    put(PAGE, "sites", ["", *noise(record["sites"]), ""])


def main() -> None:
    if "--consortium" in sys.argv:
        sys.argv.remove("--consortium")
        from consortium.every import main as consortium

        consortium(environment, RESULTS, PAGE, put)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes: five peers, 20,000 numbers, once")
    parser.add_argument("--install", action="store_true", help="make all environments, and stop")
    parser.add_argument("--only", default="", help="beside gloo only systems with this in their names")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write docs/results/rivals.* and the tables of the page")
    parser.add_argument(
        "--tables", action="store_true", help="run nothing: write the same from docs/results/rivals.json"
    )
    args = parser.parse_args()
    if args.tables:
        show(json.loads((RESULTS / "rivals.json").read_text(encoding="utf-8")), write=True)
        return
    if args.install:
        for name in {rival.environment for rival in RIVALS}:
            environment(name)
        return
    wanted = [rival for rival in RIVALS if rival is RIVALS[0] or args.only.lower() in rival.name.lower()]
    options = ["--peers", str(args.peers), "--size", str(args.size), "--repeat", str(args.repeat)]
    turns, options = (1, ["--smoke"]) if args.smoke else (args.turns, options)
    apart, load = name_spaces(), os.getloadavg()
    found = []
    for turn in range(turns):
        row = []
        for rival in wanted:
            row.append(measure(rival, options, apart))
            print(f"turn {turn + 1} of {turns}: {json.dumps(row[-1])}", file=sys.stderr, flush=True)
        found.append(row)
    command = shlex.join(["python", "benchmarks/rivals/run.py", *sys.argv[1:]])
    record = {"command": command, "machine": platform.platform(), "cores": os.cpu_count()}
    record |= {"load": load, "own_name_spaces": bool(apart), "turns": found}
    record["sites"] = measure(SITES, options, apart)
    show(record, write=args.write)
    if any("failed" in one for turn in found for one in turn):
        sys.exit(1)


if __name__ == "__main__":
    main()
