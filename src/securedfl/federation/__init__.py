"""Algorithm 3 as a whole: rounds of learning and averaging, settings, run folders and real peers.

`config`, `run_folder`, `task` and what they need work without torch.
"""
