"""Families of the mathematics, one file each; `shipped` holds found solutions."""
