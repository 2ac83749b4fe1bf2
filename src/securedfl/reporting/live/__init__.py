"""The live page: a run folder that is being written becomes a snapshot, a page, and events for whoever watches.

`snapshot` decides what is shown, from values and the time only; `folder` reads the files; `page` turns a snapshot into
HTML; `server` hands that out on loopback, read-only.
"""
