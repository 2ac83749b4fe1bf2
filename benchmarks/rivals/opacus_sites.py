"""Opacus at each site: what local noise costs beside noise that only the total carries, for the same epsilon.

No average is made: Opacus protects a site's own steps, and a server would add noisy updates in the clear. Measured
is a step of DP-SGD on a site against a plain one; computed, with Opacus' own accountant, is the noise in the mean of
all sites if each protects its records alone, and if the noise of all sites but the colluders' together does (ours).
"""

from __future__ import annotations

import math
import time
import warnings

from common import arguments, tell, versions

EPSILON, DELTA, SAMPLING, STEPS, COLLUDERS = 4.0, 1e-5, 0.4, 60, 2


def main() -> None:
    args = arguments(__doc__)
    warnings.filterwarnings("ignore")
    import torch
    from opacus import PrivacyEngine
    from opacus.accountants.utils import get_noise_multiplier
    from torch import nn

    torch.set_num_threads(1)
    hidden = max(16, args.size // (64 + 10 + 1))
    data = torch.utils.data.TensorDataset(torch.randn(200, 64), torch.randint(0, 10, (200,)))

    def seconds(private: bool) -> float:
        model = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(data, batch_size=80)
        if private:
            model, optimizer, loader = PrivacyEngine().make_private(
                module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
            )
        took = []
        for _ in range(args.repeat + 1):
            for x, y in loader:
                began = time.perf_counter()
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                took.append(time.perf_counter() - began)
        return sorted(took)[len(took) // 2]

    plain, private = seconds(False), seconds(True)
    sigma = get_noise_multiplier(
        target_epsilon=EPSILON, target_delta=DELTA, sample_rate=SAMPLING, steps=STEPS, accountant="rdp"
    )
    alone = sigma / math.sqrt(args.peers)
    together = sigma * math.sqrt(args.peers / (args.peers - COLLUDERS)) / args.peers
    tell(
        {
            "peers": args.peers,
            "size": args.size,
            "repeat": args.repeat,
            "seconds": private,
            "times_plain_step": private / plain,
            "noise_multiplier": sigma,
            "noise_in_mean_alone": alone,
            "noise_in_mean_together": together,
            "versions": versions("opacus", "torch"),
        }
    )


if __name__ == "__main__":
    main()
