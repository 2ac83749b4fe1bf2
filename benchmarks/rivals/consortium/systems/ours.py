"""SecureD-FL, as `securedfl peer` runs it: no server, mutual TLS, keys that are in the roster."""

from __future__ import annotations

import json
import shutil

import numpy as np
import tomli_w

from securedfl.network.wire import keys as certificates

from ..system import HERE, System

PORT, STALE = 7000, "stale"
DEADLINES = {"train": 60, "average": 8, "absent": 15, "heartbeat": 0.5}


class Ours(System):
    name = "**ours, resilient**"
    settings = (
        "`securedfl peer` at each site, protocol resilient, the deadlines of our own campaign "
        "(average 8 s, absent 15 s, train 60 s)"
    )
    packages = ("securedfl", "numpy", "cryptography")

    def prepare(self) -> None:
        place, hour = self.place, self.place.hour
        self._names = [f"p{k}" for k in range(hour.sites)]
        keys, addresses = place.folder / "keys", place.machines.addresses
        certificates.create_authority(keys)
        self._files = [
            certificates.issue(keys, name, [address]) for name, address in zip(self._names, addresses, strict=True)
        ]
        peers = [
            {
                "name": name,
                "address": f"{address}:{PORT}",
                "fingerprint": certificates.describe(files.certificate).fingerprint,
            }
            for name, address, files in zip(self._names, addresses, self._files, strict=True)
        ]
        values = {"name": "consortium", "entry": "ours_app:make", "deadlines": DEADLINES, "peers": peers}
        values["train"] = {"rounds": hour.rounds, "protocol": "resilient", "group_size": 2, "allow_exposure": True}
        for k in range(hour.sites):
            disk = place.machines.disks[k]
            shutil.copy(HERE / "sites" / "ours_app.py", disk)
            (disk / "federation.toml").write_text(tomli_w.dumps(values), encoding="utf-8")
        old = place.folder / "old-keys"
        shutil.copytree(keys, old)
        for path in old.glob("p*.*"):
            path.unlink()
        self._stale = [
            certificates.issue(old, name, [address]) for name, address in zip(self._names, addresses, strict=True)
        ]

    def site(self, k: int, *, stale: bool) -> list[str]:
        files = (self._stale if stale else self._files)[k]
        values = {"name": self._names[k], "federation": "federation.toml", "out": "out", "key": str(files.key)}
        values |= {"certificate": str(files.certificate), "authority": str(files.authority), "data": {}}
        disk = self.place.machines.disks[k]
        # a configuration is put on disk when there is room
        path = disk / ("stale.toml" if stale else "peer.toml")
        if not path.exists():
            path.write_text(tomli_w.dumps(values), encoding="utf-8")
        return [str(self.place.python), "-m", "securedfl", "peer", path.name, "--json"]

    def collect(self) -> None:
        for k, disk in enumerate(self.place.machines.disks):
            if (path := disk / "out" / "model.npz").exists():
                with np.load(path) as kept:
                    self.keep(k, kept["weights"], path)

    def told(self, k: int) -> str:
        texts = []
        for disk in self.place.machines.disks:
            path = disk / "out" / "peer.log"
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            texts += [json.loads(line)["text"] for line in lines if "fingerprint" in line]
        return texts[-1] if texts else ""
