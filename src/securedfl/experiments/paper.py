"""The paper's own numbers and claims, as printed, and what the authors' experiments gave where it prints none."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DATASETS = {
    "femnist": "FEMNIST",
    "shakespeare": "Shakespeare",
    "cifar10": "CIFAR-10",
}
"""The paper's names of the data sets."""

BEST_ACCURACY: Mapping[tuple[str, int], Mapping[str, float]] = MappingProxyType(
    {
        ("femnist", 9): {"local": 0.9901, "fedavg": 0.9952, "secured": 0.9953},
        ("shakespeare", 9): {"local": 0.5054, "fedavg": 0.5270, "secured": 0.5271},
        ("cifar10", 9): {"local": 0.5713, "fedavg": 0.7769, "secured": 0.7733},
        ("femnist", 15): {"local": 0.9888, "fedavg": 0.9952, "secured": 0.9953},
        ("shakespeare", 15): {"local": 0.4932, "fedavg": 0.5179, "secured": 0.5178},
        ("cifar10", 15): {"local": 0.4868, "fedavg": 0.7664, "secured": 0.7608},
    }
)
"""Table 2, "Best Test Accuracy Over Training", by data set and peers."""

MSE: Mapping[int, float] = MappingProxyType(
    {1: 6.5e-3, 2: 1.6e-9, 3: 6.6e-12, 4: 3.7e-14, 5: 3.4e-16, 6: 3.9e-16, 7: 1.1e-16}
)
"""Figure 4, average mean squared error by number of iterations, from the authors' experiments."""

MSE_AFTER_FOUR = 1e-13
"""Section 6.3: "After 4 iterations, the error drops below 10^-13"."""

POINTS: Mapping[str, float] = MappingProxyType({"femnist": 0.02, "shakespeare": 0.02, "cifar10": 0.6})
"""How far SecureD-FL is from FedAvg at most in Table 2, in percentage points."""

ANY_POINTS = 1.0
"""Section 6.2: "In all cases, the degradation is only less than 1%"."""

PARTITIONS: Mapping[int, int] = MappingProxyType({9: 4, 15: 5})
"""Section 6.1: partitions into groups of 3 that Algorithm 2 found, by number of peers."""


def name(dataset: str) -> str:
    """Return the paper's name of a data set, or its own."""
    return DATASETS.get(dataset, dataset)
