"""gloo under torchrun: the elastic launcher of PyTorch restarts all workers when one is lost, as its guide says."""

from __future__ import annotations

from typing import ClassVar

from ..system import HERE, System

PORT = 29400


class Gloo(System):
    name = "gloo, torchrun"
    settings = (
        "torchrun --nnodes=4:8 --max-restarts=100, rendezvous c10d at site 0 (last_call_timeout=5), a timeout of 15 s "
        "for collectives, a checkpoint after every round, the newest one is loaded after a restart"
    )
    packages = ("torch",)
    without: ClassVar = {"stale": "it has no keys"}

    def site(self, k: int, *, stale: bool) -> list[str]:
        sites, addresses = self.place.hour.sites, self.place.machines.addresses
        return [
            *(str(self.place.python), "-m", "torch.distributed.run"),
            *(f"--nnodes={(sites + 1) // 2}:{sites}", "--nproc-per-node=1", "--max-restarts=100"),
            *("--rdzv-id=consortium", "--rdzv-backend=c10d", f"--rdzv-endpoint={addresses[0]}:{PORT}"),
            *(f"--rdzv-conf=is_host={int(k == 0)},last_call_timeout=5", f"--local-addr={addresses[k]}"),
            str(HERE / "sites" / "gloo_site.py"),
        ]

    def variables(self, k: int) -> dict[str, str]:
        return {**super().variables(k), "GLOO_SOCKET_IFNAME": "eth0"}
