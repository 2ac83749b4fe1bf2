"""How two peers get a connection.

One listens (`door`), the other dials (`dial`) again and again (`pursuit`), or a third one joins them (`relay`).
"""
