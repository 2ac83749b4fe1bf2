"""Designs: which peers meet in which group, so that no two peers meet twice."""

from securedfl.designs.algorithm2 import randomized
from securedfl.designs.choice import Choice, best_for
from securedfl.designs.constructions.local_search import local_search
from securedfl.designs.design import Design, Group, Partition
from securedfl.designs.portfolio import best, constructed
from securedfl.designs.sizes import group_sizes, upper_bound
from securedfl.designs.temporary import best_design, nearest_design

__all__ = [
    "Choice",
    "Design",
    "Group",
    "Partition",
    "best",
    "best_design",
    "best_for",
    "constructed",
    "group_sizes",
    "local_search",
    "nearest_design",
    "randomized",
    "upper_bound",
]
