"""Algorithm 3 as a whole: rounds of learning and averaging, settings, run folders and checkpoints.

`securedfl.federation.config` and `securedfl.federation.run_folder` work without torch.
"""
