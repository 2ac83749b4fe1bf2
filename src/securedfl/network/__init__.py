"""One peer per process: the log that all agree on, and the averages that it lets happen.

`core/` decides (pure), `wire/` moves bytes, and `shell` ties them to disk, clock and threads; `peer.Peer` is the door.
An average runs in `trial` over `driver`, `mailbox`, `parcels` and `routes`; results are kept by `results`, handed on
by `handing`, and what must not be forgotten is in the `journal`.
"""
