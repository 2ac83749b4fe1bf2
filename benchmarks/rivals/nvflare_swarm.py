"""NVFlare's swarm learning in its simulator: sites send models to one of them, which is drawn anew in every round.

Time is from the last site's vector to the last site's receipt of the average, as the sites note it; the first round
warms up. Sites are processes or threads of NVFlare's simulator on this machine.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from common import Watch, arguments, raise_loopback, tell, versions


def main() -> None:
    args = arguments(__doc__)
    raise_loopback()
    from nvflare.app_opt.pt.recipes.swarm import SwarmLearningRecipe
    from nvflare.recipe import SimEnv

    here, place = Path(__file__).parent, Path(tempfile.mkdtemp())
    notes = place / "notes"
    notes.mkdir()
    os.environ |= {"SIZE": str(args.size), "PEERS": str(args.peers), "NOTES": str(notes), "RIVALS": str(here)}
    rounds = args.repeat + 2
    recipe = SwarmLearningRecipe(
        name="swarm",
        model={"class_path": "torch.nn.Linear", "args": {"in_features": args.size, "out_features": 1, "bias": False}},
        num_rounds=rounds,
        train_script=str(here / "nvflare_site" / "site.py"),
        min_clients=args.peers,
        key_metric=None,
    )
    watch = Watch()
    watch.begin()
    sys.stdout.flush()
    with watch.average():
        recipe.execute(SimEnv(num_clients=args.peers, num_threads=args.peers, workspace_root=str(place / "work")))
    sites = [[json.loads(line) for line in file.read_text().splitlines()] for file in notes.glob("*.jsonl")]
    if len(sites) < args.peers:
        raise SystemExit(f"only {len(sites)} of {args.peers} sites took part")
    whole = watch.result(args, largest_error=max(note["error"] for site in sites for note in site[1:]))
    done = min(map(len, sites))
    spans = [max(s[r + 1]["received"] for s in sites) - max(s[r]["sent"] for s in sites) for r in range(1, done - 1)]
    for key, name in (("processor_seconds_per_peer", "processor"), ("bytes_per_peer", "bytes")):
        if whole[key] is not None:
            used = [max(s[r + 1][name] for s in sites) - max(s[r][name] for s in sites) for r in range(1, done - 1)]
            whole[key] = statistics.median(used) / args.peers
    # its processes start within the run, so that what an average adds cannot be told
    whole |= {"seconds": statistics.median(spans), "repeat": len(spans), "memory_per_peer_in_vectors": None}
    tell({**whole, "versions": versions("nvflare", "torch", "numpy")})


if __name__ == "__main__":
    main()
