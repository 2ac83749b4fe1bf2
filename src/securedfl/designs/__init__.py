"""Designs: which peers meet in which group, so that no two peers meet twice.

`best_design` answers "which design shall we use?", `securedfl.designs.coalitions` "what do colluders learn from it?".
"""

from securedfl.designs.algorithm2 import randomized
from securedfl.designs.best import best_design, choose, nearest, strength_for
from securedfl.designs.coalitions import withstands
from securedfl.designs.design import Design
from securedfl.designs.known import best, constructed
from securedfl.designs.local_search import local_search
from securedfl.designs.sizes import group_sizes, upper_bound

__all__ = [
    "Design",
    "best",
    "best_design",
    "choose",
    "constructed",
    "group_sizes",
    "local_search",
    "nearest",
    "randomized",
    "strength_for",
    "upper_bound",
    "withstands",
]
