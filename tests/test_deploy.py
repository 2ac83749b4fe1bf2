"""What deploy/ says fits together: no engine is needed. docs/guides/containers.md tells what was really run."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from securedfl.cli import INTERRUPTED
from securedfl.federation.peers.config import FederationConfig, PeerConfig

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
CLUSTER = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "site.yaml").read_text(encoding="utf-8")))


def healthy():
    spec = importlib.util.spec_from_file_location("healthy", ROOT / "deploy" / "healthy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestImage:
    def test_what_is_copied_exists_and_passes_the_ignore_file(self):
        let_through = [
            line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] == "!"
        ]
        copied = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if re.match(r"COPY (?!--from)", line)]
        for name in (one for names in copied for one in names if not one.startswith("--")):
            assert (ROOT / name).exists(), name
            assert name in let_through, name

    def test_it_ends_as_a_user_that_is_not_root(self):
        users = re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)
        assert users == ["10001:10001"]
        assert DOCKERFILE.index("USER ") > DOCKERFILE.rindex("RUN ")

    def test_extras_exist(self):
        known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
        assert set(re.search(r"ARG EXTRAS=(\S+)", DOCKERFILE)[1].split(",")) <= known.keys()


class TestCompose:
    def test_three_sites_that_give_up_what_they_do_not_need(self):
        sites = {name: one for name, one in COMPOSE["services"].items() if name != "found"}
        assert sorted(sites) == ["a", "b", "c"]
        for name, site in sites.items():
            assert site["command"] == ["peer", f"{name}.toml"]
            assert site["read_only"]
            assert site["cap_drop"] == ["ALL"]
            assert site["depends_on"]["found"]["condition"] == "service_completed_successfully"

    def test_the_settings_that_it_makes_are_valid(self, tmp_path):
        """Its own commands, in a shell: the same lines that the container runs."""
        script = COMPOSE["services"]["found"]["command"][0]
        run = f'securedfl() {{ "{sys.executable}" -c "from securedfl.cli import main; main()" "$@"; }}\n{script}'
        subprocess.run(["sh", "-ec", run], cwd=tmp_path, check=True, capture_output=True, timeout=120)
        federation = FederationConfig.load(tmp_path / "federation.toml")
        assert [one.address for one in federation.peers] == ["a:7443", "b:7443", "c:7443"]
        peer = PeerConfig.load(tmp_path / "b.toml")
        assert (peer.metrics, peer.listen) == ("127.0.0.1:9100", "0.0.0.0:7443")


class TestCluster:
    def test_nothing_comes_in(self):
        kinds = {one["kind"]: one for one in CLUSTER}
        assert kinds.keys() == {"StatefulSet", "NetworkPolicy"}
        assert kinds["NetworkPolicy"]["spec"]["ingress"] == []
        assert "Ingress" in kinds["NetworkPolicy"]["spec"]["policyTypes"]

    def test_one_pod_without_rights_whose_volumes_exist(self):
        spec = next(one for one in CLUSTER if one["kind"] == "StatefulSet")["spec"]
        pod = spec["template"]["spec"]
        assert spec["replicas"] == 1
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        volumes = {one["name"] for one in pod["volumes"]}
        volumes |= {one["metadata"]["name"] for one in spec["volumeClaimTemplates"]}
        for container in [*pod["initContainers"], *pod["containers"]]:
            locked = container["securityContext"]
            assert locked["readOnlyRootFilesystem"]
            assert not locked["allowPrivilegeEscalation"]
            assert locked["capabilities"]["drop"] == ["ALL"]
            assert {one["name"] for one in container["volumeMounts"]} <= volumes


@pytest.mark.parametrize(("code", "exit_code", "said"), [(200, 0, "ok"), (503, 1, "503 the run is over")])
def test_healthy_asks_the_peer(code, exit_code, said, monkeypatch, capsys):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(code)
            self.end_headers()
            self.wfile.write(b"ok" if code == 200 else b"the run is over")

        def log_message(self, *_args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.handle_request, daemon=True).start()
        module = healthy()
        monkeypatch.setattr(module, "ADDRESS", f"http://127.0.0.1:{server.server_port}/healthz")
        assert module.main() == exit_code
    assert capsys.readouterr().out.strip() == said


def test_nobody_there_is_not_healthy(monkeypatch, capsys):
    module = healthy()
    monkeypatch.setattr(module, "ADDRESS", "http://127.0.0.1:9/healthz")
    assert module.main() == 1
    assert "127.0.0.1:9" in capsys.readouterr().out


def test_a_peer_that_systemd_stops_has_not_failed():
    """SIGTERM ends a peer politely, with the exit code of Ctrl-C, as tests/network/test_faults.py shows."""
    guide = (ROOT / "docs" / "guides" / "operations.md").read_text(encoding="utf-8")
    unit = re.search(r"```ini\n(.*?)```", guide, re.DOTALL)[1]
    assert f"SuccessExitStatus={INTERRUPTED}\n" in unit
    errors = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert any("SIGTERM" in line for line in errors.splitlines() if line.startswith(f"| {INTERRUPTED} |"))
