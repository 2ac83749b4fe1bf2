"""What a peer trains: data sets and how they are dealt to peers, models and local updates (PyTorch).

Importing this package does not import torch; `data` and `training.task` work without it.
"""
