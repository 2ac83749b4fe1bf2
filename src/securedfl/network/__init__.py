"""One peer per process: the log that all agree on, and the averages that it lets happen.

`core/` decides (pure), `wire/` moves bytes, `data/` runs averages, and `shell` ties them to disk, clock and threads;
`peer.Peer` is the door. What must not be forgotten is in the `journal`.
"""
