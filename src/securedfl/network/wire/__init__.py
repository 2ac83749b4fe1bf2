"""Links: one TLS 1.3 connection per pair of peers, opened by whichever side can and used in both directions.

The door of this room is `securedfl.network.wire.links.Links`. In short::

    links = Links("a", files, roster, listen="0.0.0.0:7443", relays=relays, on_event=events.put)
    links.send("b", b"...")                     # control: at most 1 MiB, before bulk, False if there is no link
    stream = links.open("b", key)               # bulk: messages of any length, in order, with flow control
    stream.put(head, array); stream.finish(60)
    links.accept("b", key, inlet)               # the other end: where each message is to be put
    links.reaches()                             # {"b": Reach(True, through="relay-1"), ...}
    links.update(roster=..., files=...)
    links.close()
"""
