"""What a peer trains: data sets, partitions, models and local updates (PyTorch).

Importing this package does not import torch; `data` works
without it.
"""
