"""Flower: a mod with which sites average among themselves, so that the server never sees one site's update."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.errors import ConfigError, needing
from securedfl.federation.joining.join import join

log = logging.getLogger("securedfl.peer")

NODE_CONFIG_KEY = "securedfl-peer"
"""Of a SuperNode's ``--node-config``: where the site's peer.toml is."""

Mod = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]


def federated_mod(peer_file: str | Path | None = None, *, weighted_by: str = "num-examples") -> Mod:
    """Return a mod for Flower's Message API: replies to train messages carry the average of all sites.

    Each site averages what its ClientApp trained with the other sites, peer to peer, and answers with the common
    mean. The server gets the same arrays from all, and its own average of them changes nothing. Metrics, such as a
    site's loss and number of samples, still go to the server as the ClientApp reports them.

    Every site must get every train message (``fraction_train=1.0``), because all sites average together. The peer joins
    for each message, for Flower may run each in a process of its own. In federation.toml, ``rounds`` is the number of
    train messages less one, because the first average is that of round 0.

    Parameters
    ----------
    peer_file
        The site's ``peer.toml``; by default what ``--node-config 'securedfl-peer="..."'`` of its SuperNode names.
    weighted_by
        Which metric of the reply is the site's weight, if the federation is weighted.

    Examples
    --------
    In client_app.py::

        app = ClientApp(mods=[federated_mod()])
    """

    def mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        reply = call_next(message, context)
        if message.metadata.message_type.partition(".")[0] != "train" or reply.has_error():
            return reply
        records = reply.content.array_records
        tree = {
            f"{record}/{name}": np.array(array.numpy())
            for record, arrays in records.items()
            for name, array in arrays.items()
        }
        with join(_file(peer_file, context)) as peer:
            peer.average_(tree, _weight(reply, weighted_by) if peer.weighted else 1.0)
        with needing("securedfl.adapters.flower", "flower"):
            from flwr.app import Array, ArrayRecord
        for record, arrays in list(records.items()):
            records[record] = ArrayRecord({name: Array(tree[f"{record}/{name}"]) for name in arrays})
        return reply

    return mod


def _file(given: str | Path | None, context: Any) -> str | Path:
    """Return where peer.toml is."""
    found = context.node_config.get(NODE_CONFIG_KEY) if given is None else given
    if not isinstance(found, str | Path):
        raise ConfigError(
            f"where is this site's peer.toml? start its SuperNode with --node-config '{NODE_CONFIG_KEY}=\"PATH\"', or "
            "use federated_mod(PATH)"
        )
    return found


def _weight(reply: Any, name: str) -> float:
    """Return the site's weight from the metrics of its reply."""
    for metrics in reply.content.metric_records.values():
        if name in metrics:
            return float(metrics[name])
    raise ConfigError(
        f"the federation is weighted, and the reply has no metric {name!r}; report it, or set weighted_by"
    )
