"""Designs: which peers meet in which group, so that no two peers meet twice."""

from securedfl.designs.design import Design, Group, Partition
from securedfl.designs.portfolio import best
from securedfl.designs.randomized import randomized
from securedfl.designs.sizes import group_sizes, upper_bound

__all__ = ["Design", "Group", "Partition", "best", "group_sizes", "randomized", "upper_bound"]
