"""NVFlare, provisioned: a server at site 0, a client with its kit at each site, a job that somebody submits."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np

from ..system import HERE, System

ADMIN = "admin@consortium.org"
FILE = "FL_global_model.pt"
LOOK = 10.0
"""Seconds between two looks of the administrator."""
PROJECT = """
api_version: 3
name: consortium
participants:
  - {{name: server, type: server, org: consortium, fed_learn_port: 8002}}
{sites}
  - {{name: {admin}, type: admin, org: consortium, role: project_admin}}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {{config_folder: config}}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""


class FedAvg(System):
    name = "NVFlare FedAvg"
    environment = "nvflare"
    settings = (
        "provisioned kits (mutual TLS), started by their scripts; ScatterAndGather with min_clients of half of the "
        "sites, wait_time_after_min_received=10, train_timeout=30"
    )
    packages = ("nvflare", "torch")
    server = True
    stays = True
    job = "fedavg"
    refusal = r"SSLCertVerificationError: .*"

    def prepare(self) -> None:
        place, hour = self.place, self.place.hour
        names = [f"  - {{name: site-{k + 1}, type: client, org: consortium}}" for k in range(hour.sites)]
        project = place.folder / "project.yml"
        project.write_text(PROJECT.format(sites="\n".join(names), admin=ADMIN), encoding="utf-8")
        for name in ("kits", "stale"):
            folder = place.folder / name
            self.run(str(place.bin / "nvflare"), "provision", "-p", str(project), "-w", str(folder), "--force")
        kits = self._kits("kits")
        shutil.copytree(kits / "server", place.machines.disks[0] / "server")
        for k in range(hour.sites):
            shutil.copytree(kits / f"site-{k + 1}", place.machines.disks[k] / "site")
        self._number, self._status, self._next, self._complete = "", "", 0.0, False
        self._done, self._newest = 0, Path()

    def _kits(self, name: str) -> Path:
        return self.place.folder / name / "consortium" / "prod_00"

    def services(self) -> list[list[str]]:
        return [["bash", str(self.place.machines.disks[0] / "server" / "startup" / "sub_start.sh")]]

    def site(self, k: int, *, stale: bool) -> list[str]:
        disk = self.place.machines.disks[k]
        kit = self._kits("stale" if stale else "kits") / f"site-{k + 1}" / "startup"
        shutil.copytree(kit, disk / "site" / "startup", dirs_exist_ok=True)
        return ["bash", str(disk / "site" / "startup" / "sub_start.sh")]

    def _admin(self, *command: str, timeout: float = 60) -> dict:
        kit = ("--startup-kit", str(self._kits("kits") / ADMIN))
        told = self.run(str(self.place.bin / "nvflare"), "--format", "json", *command, *kit, timeout=timeout)
        return json.loads(told[told.index("{") :])

    def submit(self) -> None:
        until = time.monotonic() + 150
        while not self._all_there():
            if time.monotonic() > until:
                raise TimeoutError("not all clients have registered at NVFlare's server")
            time.sleep(2)
        self._again()

    def _all_there(self) -> bool:
        """Whether all sites have registered: those that come later are no part of a job."""
        try:
            status = json.dumps(self._admin("system", "status"))
        except (RuntimeError, ValueError, subprocess.TimeoutExpired):
            return False
        return all(f'"site-{k + 1}"' in status for k in range(self.place.hour.sites))

    def _again(self) -> None:
        """Submit the job, or what is left of it."""
        place, app = self.place, HERE / "sites" / "nvflare_app" / "job.py"
        job = place.folder / "job"
        shutil.rmtree(job, ignore_errors=True)
        job.mkdir()
        words = [self.job, str(job), str(place.hour.sites), str(place.hour.rounds)]
        if self._done:
            shutil.copy(self._newest, place.machines.disks[0] / "last.pt")
            words += [str(place.machines.disks[0] / "last.pt"), str(self._done)]
        self.run(str(place.python), str(app), *words)
        folder = next(path.parent for path in job.rglob("meta.json"))
        told = self._admin("job", "submit", "-j", str(folder))
        self._number, self._status = told["data"]["job_id"], ""

    def tend(self) -> str | None:
        """Look at the job; one that has failed is submitted again, which begins it anew."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + LOOK
        try:
            self._status = str(self._admin("job", "meta", self._number)["data"].get("status", ""))
        except (RuntimeError, ValueError, subprocess.TimeoutExpired):
            return None
        if self._status.startswith("FINISHED") and not self.ended():
            self._result()
            status, self._complete = self._status, self._done == self.place.hour.rounds
            if not self._complete:
                if not self._all_there():
                    return None
                self._again()
                return f"the administrator submits the job again, from round {self._done}: it ended as {status}"
            return f"the job ended as {status}, but the administrator finds that its model is complete"
        return None

    def ended(self) -> bool:
        return self._status == "FINISHED:COMPLETED" or self._complete

    def anew(self) -> str | None:
        self._admin("job", "abort", self._number, "--force")
        return "the administrator ends the job, in which nothing moves"

    def _result(self) -> None:
        """Download what the job has left at the server, and take note of its model."""
        folder = self.place.folder / "download"
        self._admin("job", "download", self._number, "-o", str(folder), "--force")
        for path in folder.rglob(FILE):
            self._keep(-1, path)

    def _keep(self, site: int, path: Path) -> None:
        copy = self.place.folder / f"last-{site}.npy"
        self.run(str(self.place.python), str(HERE / "sites" / "nvflare_app" / "last.py"), str(path), str(copy))
        if (done := self.keep(site, np.load(copy), path)) > self._done:
            self._done, self._newest = done, path

    def collect(self) -> None:
        if self.ended():
            self._result()


class Swarm(FedAvg):
    name = "NVFlare swarm"
    settings = (
        "provisioned kits as above; SwarmLearningRecipe with min_clients of half of the sites, "
        "wait_time_after_min_resps_received=10, learn_task_timeout=30, round_timeout=30"
    )
    job = "swarm"

    def _result(self) -> None:
        """Take note of the models that the job has left at the sites."""
        for k, disk in enumerate(self.place.machines.disks):
            for path in (disk / "site" / self._number).rglob(FILE):
                self._keep(k, path)
