"""What the paper prints, and what stands only in the code that its authors published; each with its source.

The paper is arXiv 2012.07183. The code is https://github.com/beomyeol/SecureD-FL.
"""

from __future__ import annotations

from collections.abc import Mapping

DATASETS: Mapping[str, str] = {
    "femnist": "FEMNIST",
    "shakespeare": "Shakespeare",
    "cifar10": "CIFAR-10",
}
"""The paper's names of the data sets."""

BEST_ACCURACY: Mapping[tuple[str, int], Mapping[str, float]] = {
    ("femnist", 9): {"local": 0.9901, "fedavg": 0.9952, "secured": 0.9953},
    ("shakespeare", 9): {"local": 0.5054, "fedavg": 0.5270, "secured": 0.5271},
    ("cifar10", 9): {"local": 0.5713, "fedavg": 0.7769, "secured": 0.7733},
    ("femnist", 15): {"local": 0.9888, "fedavg": 0.9952, "secured": 0.9953},
    ("shakespeare", 15): {"local": 0.4932, "fedavg": 0.5179, "secured": 0.5178},
    ("cifar10", 15): {"local": 0.4868, "fedavg": 0.7664, "secured": 0.7608},
}
"""Table 2, "Best Test Accuracy Over Training", by data set and peers."""

CODE = "the authors' published code"
"""How tables call what stands there and not in the paper: the schedules of rho, the errors, the common start."""

MSE: Mapping[int, float] = {1: 6.5e-3, 2: 1.6e-9, 3: 6.6e-12, 4: 3.7e-14, 5: 3.4e-16, 6: 3.9e-16, 7: 1.1e-16}
"""Average mean squared error by number of iterations, which Figure 4 draws and does not print.

From the authors' code, commit 3354683, scripts/plot_admm_mse.py, to two digits. (A later commit removed the file. It
holds an eighth value, for which nobody tells the iterations.) `securedfl.protocols.admm.AUTHORS` has the schedules of
rho, from commit ed156a1, calculate_admm_error.py.
"""

MSE_AFTER_FOUR = 1e-13
"""Section 6.3: "After 4 iterations, the error drops below 10^-13"."""

POINTS: Mapping[str, float] = {"femnist": 0.02, "shakespeare": 0.02, "cifar10": 0.57}
"""How far SecureD-FL is from FedAvg at most, in percentage points.

"Less than 0.02%" in section 6.2. Of CIFAR-10 the larger difference in Table 2 (76.64 - 76.08, as far as two digits
tell), of which the text says as a share of the accuracy that it is "only up to 0.73%".
"""

ANY_POINTS = 1.0
"""Section 6.2: "In all cases, the degradation is only less than 1%"."""

PARTITIONS: Mapping[int, int] = {9: 4, 15: 5}
"""Section 6.1: partitions into groups of 3 that Algorithm 2 found, by number of peers."""


def name(dataset: str) -> str:
    """Return the paper's name of a data set, or its own."""
    return DATASETS.get(dataset, dataset)
