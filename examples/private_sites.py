"""What a total tells about one site: plan a budget, then train with every site's whole difference clipped.

python examples/private_sites.py
"""

from __future__ import annotations

import tempfile

import securedfl
from securedfl.privacy.budget import words
from securedfl.privacy.budget.plan import Plan, settled

# 300 sites, of which 10 may collude, a model of 650 numbers, 15 rounds, epsilon 4: how much noise?
plan = settled(
    Plan(
        unit="site",
        noise="distributed",
        clip=1.0,
        noise_multiplier=0.0,  # to be found
        delta=1e-4,
        peers=300,
        collusion=10,
        rounds=15,
        size=650,
        units=300,
    ),
    epsilon=4.0,
    capacity=2**31 - 1,
)
print(f"noise multiplier {plan.noise_multiplier:g}; {words.sentence(plan, 0.0)}")

# the same question answered by a run: nine sites are far too few, and the certificate says so
summary = securedfl.train(
    model="linear",
    rounds=3,
    methods="fedavg,secured",
    out=tempfile.mkdtemp() + "/run",
    privacy={"unit": "site", "clip": 0.5, "delta": 1e-3, "epsilon": 8.0},
)
for name, method in summary.methods.items():
    print(f"{name}: accuracy {method.final_accuracy:.3f}, epsilon {method.epsilon}")
print(summary.certificate["differential_privacy"]["sentence"])
