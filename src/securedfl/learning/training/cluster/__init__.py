"""Peers trained on the nodes of a cluster: `placement` deals them to shards, `team` drives these, `ray_host` runs them.

Of this folder only `ray_host` knows Ray, which is imported when a run asks for it.
"""
