"""Flower's deployment: a SuperLink at site 0, a SuperNode at each site, TLS, and keys that are registered."""

from __future__ import annotations

import json
import shutil
import time

from ..hour import Hour
from ..keys import Authority, ssh_key
from ..system import HERE, System

PORT = 8000
PATIENCE = 30
PROJECT = """
[project]
name = "consortium"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "consortium"
[tool.flwr.app.components]
serverapp = "{module}:server"
clientapp = "{module}:client"
[tool.flwr.app.config]
sites = {sites}
rounds = {rounds}
enough = {enough}
patience = {patience}
checkpoint = "{checkpoint}"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""


class Flower(System):
    name = "Flower FedAvg"
    environment = "flower"
    settings = (
        "SuperLink with TLS, --enable-supernode-auth and a database, SuperNodes with registered keys; FedAvg of all "
        f"nodes that are there, at least half of them, a round waits {PATIENCE} s; evaluation at the sites after each "
        "round, its default; a checkpoint at the server after each round"
    )
    packages = ("flwr", "numpy")
    server = True
    stays = True
    module = "fedavg"
    # two messages in each round, and a new process at every site for each of them
    patience = 2.0
    refusal = r"Failed to activate SuperNode\.|No SuperNode found with the given public key"

    def prepare(self) -> None:
        place, hour = self.place, self.place.hour
        self._keys = place.folder / "keys"
        authority = Authority(self._keys)
        authority.issue("server", [place.machines.addresses[0], "127.0.0.1"])
        for k in range(hour.sites):
            ssh_key(self._keys / f"site-{k}")
            ssh_key(self._keys / f"stale-{k}")
        app = place.folder / "app"
        shutil.copytree(HERE / "sites" / "flower_app", app, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(HERE / "training.py", app)
        (app / "pyproject.toml").write_text(self.project(hour), encoding="utf-8")
        config = place.machines.disks[0] / "home" / ".flwr" / "config.toml"
        config.parent.mkdir()
        config.write_text(
            f'[superlink]\ndefault = "consortium"\n[superlink.consortium]\naddress = "server:{PORT}"\n'
            f'root-certificates = "{authority.certificate}"\n',
            encoding="utf-8",
        )

    def project(self, hour: Hour) -> str:
        values = {"sites": hour.sites, "rounds": hour.rounds, "enough": (hour.sites + 1) // 2, "patience": PATIENCE}
        values["checkpoint"] = self.place.machines.disks[0] / "checkpoint.npz"
        return PROJECT.format(module=self.module, **values)

    def services(self) -> list[list[str]]:
        keys = self._keys
        return [
            [
                *(str(self.place.bin / "flower-superlink"), "--host", "0.0.0.0", "--port", str(PORT)),  # noqa: S104
                *("--ssl-ca-certfile", str(keys / "ca.crt"), "--ssl-certfile", str(keys / "server.crt")),
                *("--ssl-keyfile", str(keys / "server.key"), "--enable-supernode-auth"),
                *("--disable-runtime-dependency-installation", "--database", "superlink.db"),
            ]
        ]

    def site(self, k: int, *, stale: bool) -> list[str]:
        return [
            *(str(self.place.bin / "flower-supernode"), "--superlink", f"server:{PORT}"),
            *("--root-certificates", str(self._keys / "ca.crt")),
            *("--auth-supernode-private-key", str(self._keys / f"{'stale' if stale else 'site'}-{k}")),
        ]

    def admit(self) -> None:
        for k in range(self.place.hour.sites):
            public = str(self._keys / f"site-{k}.pub")
            self._patiently(str(self.place.bin / "flwr"), "supernode", "register", public)

    def submit(self) -> None:
        app = str(self.place.folder / "app")
        told = self.run(str(self.place.bin / "flwr"), "run", app, "consortium", "--format", "json")
        self._number = str(json.loads(told[told.index("{") :])["run-id"])

    def anew(self) -> str:
        self.run(str(self.place.bin / "flwr"), "stop", self._number, "consortium")
        self.submit()
        return "the run is stopped and begun again from the server's checkpoint"

    def _patiently(self, *command: str) -> None:
        """Run a command until it succeeds: the SuperLink takes some seconds to listen."""
        until = time.monotonic() + 90
        while True:
            try:
                self.run(*command)
                return
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(1)

    def ended(self) -> bool:
        path = self.place.notes / "site--1.jsonl"
        return path.exists() and '"ended"' in path.read_text()

    def variables(self, k: int) -> dict[str, str]:
        return {**super().variables(k), "FLWR_TELEMETRY_ENABLED": "0"}


class SecAgg(Flower):
    name = "Flower SecAgg+"
    settings = (
        "as Flower FedAvg, by the legacy API; SecAgg+ with shares to all sites and a threshold of half of them, each "
        f"of its four stages waits {PATIENCE} s"
    )
    module = "secagg"
    # five messages instead of two
    patience = 4.0
    alone = False
