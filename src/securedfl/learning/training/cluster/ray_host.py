"""Shards as actors of Ray: on a cluster of this machine that ends with the run, or on one that is there."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from securedfl.errors import ConfigError
from securedfl.learning.training.cluster.placement import Node, Placement
from securedfl.learning.training.cluster.shard import Shard
from securedfl.learning.training.failures import LostError, WorkerLostError
from securedfl.learning.training.task import Maker

CONNECT_SECONDS = 5.0
"""How long an address may take to answer."""

QUIET = {
    # no word to Ray's makers
    "RAY_USAGE_STATS_ENABLED": "0",
    # no pages about a lost worker among what a command prints: a team says it in a line
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""What Ray reads when it is imported, unless the user has set it."""

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""The same for a cluster of our own; the name is Ray's: without "clusters", its processes listen on loopback only."""


class RayHost:
    """Runs shards on Ray: starts and stops them, carries a team's questions to them, and says that one is gone.

    Parameters
    ----------
    address
        ``"auto"`` or ``HOST:PORT`` of a cluster that is there; None starts one on this machine, on loopback, and ends
        it with the run. A script that is connected already stays so.
    cores
        How many cores a cluster of our own shall offer.
    gpu
        Whether shards take a GPU.
    """

    def __init__(self, address: str | None, *, cores: int, gpu: bool = False) -> None:
        self._gpu, self._ours, self._actors = gpu, False, list[Any]()
        wish = QUIET | LOOPBACK if address is None else QUIET
        os.environ.update({key: os.environ.get(key, value) for key, value in wish.items()})
        import ray

        self._ray = ray
        if ray.is_initialized():
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            try:
                ray.init(address="local", num_cpus=cores, include_dashboard=False, **quiet)
            except Exception as error:  # Ray has no class of its own for it
                raise WorkerLostError(
                    f"Ray did not start on this machine ({_first_line(error)}); it may be too busy, or /tmp full: try "
                    'again, or use engine = "local"'
                ) from error
            self._ours = True
            self._check_loopback()
            return
        _check_reachable(address)
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _nobody(address, _first_line(error)) from None
        self._ours = True

    def _check_loopback(self) -> None:
        """End a cluster that others could reach: who reaches it can run code here."""
        if all(ipaddress.ip_address(node["NodeManagerAddress"]).is_loopback for node in self._ray.nodes()):
            return
        self.close()
        raise ConfigError(
            "Ray was imported before the run and would listen on other addresses than loopback; set "
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 before, or start a cluster yourself and give its address"
        )

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that answer now, in a fixed order; Ray itself takes its time to miss one."""
        home = self._ray.get_runtime_context().get_node_id()
        alive = [node for node in self._ray.nodes() if node["Alive"] and _answers(node)]
        return tuple(
            Node(
                id=node["NodeID"],
                address=node["NodeManagerAddress"],
                cores=int(node["Resources"].get("CPU", 0)),
                memory=int(node["Resources"].get("memory", 0)),
                gpus=int(node["Resources"].get("GPU", 0)),
                home=node["NodeID"] == home,
            )
            for node in sorted(alive, key=lambda node: str(node["NodeID"]))
        )

    def start(self, seat: Placement, make: Maker, *, again: bool) -> Any:
        """Start a shard as an actor on the seat's node, and return a handle of it.

        It takes a core or GPU there; one that starts ``again``, in the place of a lost one, does not, because what is
        left may have fewer than shards.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = (
            self._ray.remote(Shard)
            .options(
                num_cpus=0 if self._gpu or again else 1,
                num_gpus=(0.01 if again else 1) if self._gpu else 0,
                # who asks for nothing at all is sent through any node, also through one that has just been lost
                memory=seat.memory,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(seat.node.id, soft=again),
            )
            .remote(make)
        )
        self._actors.append(actor)
        return actor

    def stop(self, shard: Any) -> None:
        """End a shard, if it is there at all."""
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(shard, no_restart=True)
        self._actors = [actor for actor in self._actors if actor is not shard]

    def share(self, value: Any) -> Any:
        """Return what stands for a value in questions: it lies in the object store, and each node takes it once."""
        return self._ray.put(value)

    def ask(self, shard: Any, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of a shard and return a ticket for its answer; a shard answers in the order of the calls."""
        return getattr(shard, method).remote(*arguments, **options)

    def ready(self, tickets: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """Wait until one or more of the tickets have answers, and return those; none if the time has passed."""
        found, _ = self._ray.wait(list(tickets), num_returns=1, timeout=seconds)
        return list(found)

    def collect(self, ticket: Any) -> Any:
        """Return an answer, or raise `LostError`: whatever Ray itself raises means that shard or answer is gone."""
        try:
            return self._ray.get(ticket)
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except self._ray.exceptions.RayError as error:
            raise LostError(_reason(error)) from None

    def close(self) -> None:
        """End the shards; leave the cluster, or end it with all its processes if it is our own. May be called twice."""
        if not self._ray.is_initialized():
            return
        for actor in self._actors:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor, no_restart=True)
        self._actors = []
        if self._ours:
            self._ours = False
            self._ray.shutdown()


def _answers(node: dict[str, Any]) -> bool:
    """Say whether a node's own process is there."""
    with suppress(OSError):
        _connect(node["NodeManagerAddress"], node["NodeManagerPort"])
        return True
    return False


def _connect(host: str, port: int) -> None:
    socket.create_connection((host, port), CONNECT_SECONDS).close()


def _check_reachable(address: str) -> None:
    """Try the port of an address; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        _connect(host.strip("[]"), int(port))
    except (OSError, UnicodeError) as error:
        raise _nobody(address, getattr(error, "strerror", None) or str(error)) from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


def _nobody(address: str, why: str) -> ConfigError:
    what = "runs on this machine" if address == "auto" else f"answers at {address}"
    return ConfigError(
        f"no Ray cluster {what} ({why}); start one with `ray start --head` and give its "
        "address, or leave address away: then the run starts one of its own"
    )


REASONS = {
    "OutOfMemoryError": "its node ran out of memory",
    "ActorDiedError": "its process ended",
    "ActorUnavailableError": "it does not answer",
    "NodeDiedError": "its node is gone",
    "ObjectLostError": "its answer is gone",
    "OwnerDiedError": "its answer is gone",
}
"""What Ray's errors mean, in fewer words than Ray's."""


def _reason(error: Exception) -> str:
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return next((REASONS[kind] for kind in kinds if kind in REASONS), kinds[0])
