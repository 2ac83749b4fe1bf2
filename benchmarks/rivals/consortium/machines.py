"""Several machines on this one: each with an address, a disk and a line of its own, and what may happen to them.

A machine is a network name space on one switch, and a small file system in memory for its disk. Whatever runs in the
name space runs on the machine, so that all of its processes can be killed or frozen at once, as happens to machines.
Must run as root (of a user name space, if need be) in network, mount and process name spaces of its own; whoever ends
the first process of those ends everything.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from .line import Line

NOWHERE = "02:00:00:00:00:ff"
"""Nobody's: frames to it get lost."""
SPARE = 64 * 1024


def do(*words: str, check: bool = True) -> str:
    """Run a command of the system and return what it printed."""
    ended = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    if check and ended.returncode:
        raise OSError(f"{' '.join(words)}: {ended.stderr.strip()}")
    return ended.stdout


class Machines:
    """So many machines.

    Parameters
    ----------
    count
        How many.
    folder
        Where their disks are mounted.
    slow
        The machine whose line can be slow, which goes through this process.
    megabytes
        Size of a disk.
    """

    def __init__(self, count: int, folder: Path, slow: int, megabytes: int = 512) -> None:
        self.count, self._slow = count, slow
        self.addresses = [f"10.77.0.{k + 1}" for k in range(count)]
        self.disks = [folder / f"disk-{k}" for k in range(count)]
        Path("/run/netns").mkdir(parents=True, exist_ok=True)
        do("mount", "-t", "tmpfs", "names", "/run/netns")
        self._name(folder)
        do("ip", "link", "set", "lo", "up")
        do("ip", "link", "add", "switch", "type", "bridge")
        do("ip", "link", "set", "switch", "up")
        self.line = Line(f"port{slow}", f"line{slow}")
        self._spaces = []
        for k in range(count):
            do("ip", "netns", "add", f"m{k}")
            if k == slow:
                do("ip", "link", "set", f"line{k}", "netns", f"m{k}", "name", "eth0")
            else:
                do("ip", "link", "add", f"port{k}", "type", "veth", "peer", "name", "eth0", "netns", f"m{k}")
            do("ip", "link", "set", f"port{k}", "master", "switch", "up")
            do("ip", "-n", f"m{k}", "addr", "add", f"{self.addresses[k]}/24", "dev", "eth0")
            for port in ("eth0", "lo"):
                do("ip", "-n", f"m{k}", "link", "set", port, "up")
            self._spaces.append(Path(f"/run/netns/m{k}").stat().st_ino)
            self.disks[k].mkdir(parents=True)
            do("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", f"disk{k}", str(self.disks[k]))
            for name in ("home", "tmp"):
                (self.disks[k] / name).mkdir()

    def _name(self, folder: Path) -> None:
        """Give each machine a name that all others know, and let nobody wait for a name server."""
        names = [f"{address} site-{k + 1}{' server' * (not k)}" for k, address in enumerate(self.addresses)]
        for path, lines in (("/etc/hosts", ["127.0.0.1 localhost", *names]), ("/etc/resolv.conf", [])):
            own = folder / Path(path).name
            own.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            do("mount", "--bind", str(own), path)

    def start(self, k: int, command: Sequence[str], output: IO[str], more: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a command on a machine, whose home and temporary files are on its disk."""
        disk = self.disks[k]
        variables = {**os.environ, "HOME": str(disk / "home"), "TMPDIR": str(disk / "tmp"), **more}
        return subprocess.Popen(
            ["ip", "netns", "exec", f"m{k}", *command],
            cwd=disk,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def processes(self, k: int) -> list[int]:
        """Return the numbers of all processes that run on a machine."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (path / "ns" / "net").stat().st_ino == self._spaces[k]:
                    found.append(int(path.name))
        return found

    def signal(self, k: int, number: signal.Signals) -> None:
        """Send a signal to every process of a machine; to those that they start meanwhile, too."""
        seen: set[int] = set()
        while new := set(self.processes(k)) - seen:
            for process in new:
                with suppress(ProcessLookupError):
                    os.kill(process, number)
            seen |= new

    def cut(self, a: int, b: int, *, breaks: bool) -> None:
        """Cut the link between two machines: it is silent, or what is open breaks and nothing new can be opened."""
        for me, other in ((a, b), (b, a)):
            there = self.addresses[other]
            if breaks:
                do("ip", "-n", f"m{me}", "route", "add", "unreachable", f"{there}/32")
                do("ip", "netns", "exec", f"m{me}", "ss", "--kill", "--tcp", "dst", there)
            else:
                entry = (there, "lladdr", NOWHERE, "nud", "permanent", "dev", "eth0")
                do("ip", "-n", f"m{me}", "neigh", "replace", *entry)

    def mend(self, a: int, b: int, *, breaks: bool) -> None:
        """Mend a link that was cut."""
        for me, other in ((a, b), (b, a)):
            there = self.addresses[other]
            if breaks:
                do("ip", "-n", f"m{me}", "route", "del", "unreachable", f"{there}/32")
            else:
                do("ip", "-n", f"m{me}", "neigh", "del", there, "dev", "eth0")

    def fill(self, k: int) -> None:
        """Write to a machine's disk until there is no room."""
        with (self.disks[k] / "ballast").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(SPARE))

    def clean(self, k: int) -> None:
        """Make room again."""
        (self.disks[k] / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """End everything that runs on the machines."""
        for k in range(self.count):
            self.signal(k, signal.SIGKILL)
        self.line.close()
