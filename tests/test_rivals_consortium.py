"""The consortium's bad hour for rivals: the same faults as ours, models that tell who is in them, tables, machines."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.network.campaign import consortium as ours

FOLDER = Path(__file__).parents[1] / "benchmarks" / "rivals"
KINDS = {"leave": "leave", "kill": "kill", "stop": "freeze", "disk full": "full", "slow": "slow"}


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def test_rivals_are_hit_by_the_same_faults_at_the_same_moments_as_ours():
    from consortium.hour import BAD, PUT_RIGHT
    from consortium.line import DELAY, RATE

    from tests.network.campaign import weather

    wanted = set()
    for fault in ours.FAULTS:
        if fault.kind == "cut":
            ends = frozenset((fault.peer, fault.other))
            wanted.add((fault.at, "break" if fault.breaks else "silent", ends, fault.lasts))
        else:
            wanted.add((fault.at, KINDS[fault.kind], frozenset((fault.peer,)), fault.lasts))
    found = {(f.at, f.kind, frozenset({f.site, f.other} - {-1}), f.lasts) for f in BAD.faults}
    assert found == wanted
    assert (BAD.sites, BAD.rounds, PUT_RIGHT) == (ours.SITES, ours.ROUNDS, ours.PUT_RIGHT)
    assert [fault.site for fault in BAD.faults if fault.stale] == [ours.STALE]
    assert (RATE, DELAY) == (weather.RATE, weather.DELAY)


def test_a_model_tells_whose_training_is_in_it():
    from consortium import training
    from consortium.judge import inside

    members = [[0, 1, 2], [0, 2], [], [1]]
    model = training.exact(members).astype(np.float32)
    weights = training.found(model, 3, 4)
    assert np.allclose(weights, [[1 / 3] * 3, [0.5, 0, 0.5], [0] * 3, [0, 1, 0]], atol=1e-6)
    assert training.newest_round(model, 3, 4) == 4
    assert training.newest_round(training.exact(members[:2]), 3, 4) == 2
    assert training.newest_round(training.start(), 3, 4) == 0
    found = inside(model, 3, 4)
    assert found["members"] == ["012", "02", "", "1"]
    assert (found["trainings"], found["rounds_with_all"], found["fewest_members"]) == (6, 1, 0)
    assert found["distance"] < 1e-7
    # a weighted mean is not the mean over its members
    uneven = inside(model + 0.1 * training.step(0, 1), 3, 4)
    assert uneven["largest_weight_off"] == pytest.approx(0.1, abs=1e-3)
    assert uneven["distance"] > 1e-3


def test_what_came_out_is_read_from_notes(tmp_path):
    from consortium import training
    from consortium.judge import SERVER, judge

    first, second = training.exact([[0, 1]]), training.exact([[0, 1], [0, 1]])
    for site in (0, 1):
        training.hold(site, 1, first, tmp_path, 1020.0)
        training.hold(site, 2, second, tmp_path, 1050.0 + 10 * site)
    training.hold(2, 1, training.exact([[2]]), tmp_path)
    training.hold(SERVER, 2, second, tmp_path, 1099.0)
    with (tmp_path / "site-2.jsonl").open("a") as torn:
        torn.write('{"site": 2, "rou')
    found = judge(tmp_path, 3, 2, 1000.0)
    assert found["seconds"] == 60.0
    assert found["finished"] == [0, 1]
    assert found["rounds_of_sites"] == {-1: 2, 0: 2, 1: 2, 2: 1}
    assert (found["server_finished"], found["different_bits"], found["apart"]) == (True, 1, 0.0)
    assert found["rounds_with_several_models"] == 1
    assert [one["held_by"] for one in found["inside"]] == [[0, 1, -1]]
    training.hold(1, 2, second + 1e-7, tmp_path)
    assert judge(tmp_path, 3, 2, 0.0)["different_bits"] == 2
    assert len(judge(tmp_path, 3, 2, 0.0)["inside"]) == 1
    training.hold(1, 2, second + 1e-2, tmp_path)
    assert len(judge(tmp_path, 3, 2, 0.0)["inside"]) == 2


def example(**changes):
    inside = {"trainings": 158, "rounds_with_all": 19, "distance": 1e-7, "largest_weight_off": 0.0}
    run = {
        "name": "gloo",
        "system": "gloo",
        "hour_name": "bad",
        "sites": 8,
        "rounds": 20,
        "seconds": 99.6,
        "over": True,
        "over_after": 101.0,
    }
    run |= {"finished": list(range(8)), "server_finished": False, "different_bits": 1, "apart": 0.0, "inside": [inside]}
    run |= {"load": 2.4, "versions": {"torch": "2"}, "settings": "all of it", "stale_key_was_told": ""}
    run |= {"starts": dict.fromkeys(range(8), 1) | {3: 2, 6: 3}, "acts": [], "put_right": True}
    return {**run, "hour_faults": ["slow", "leave", "kill"], **changes}


def test_tables_say_who_finished_with_which_model():
    from consortium.table import tables

    quiet = example(hour_name="quiet", seconds=70.2, put_right=False, hour_faults=[])
    stuck = example(
        system="b",
        name="flower",
        seconds=None,
        over_after=900.0,
        over=False,
        finished=[],
        inside=[],
        server_finished=True,
    )
    worse = example(
        system="c", name="hivemind", different_bits=3, apart=0.25, starts={0: 12}, acts=["submits the job again"]
    )
    alone = example(hour_name="leave", rounds=10, inside=[{**example()["inside"][0], "trainings": 79}])
    failed = example(hour_name="kill", failed="no | way")
    made = tables([example(), quiet, stuck, worse, alone, failed])
    assert made["consortium"][2] == (
        "| gloo | 8 of 8 sites | 100 s (load 2) | 70 s, 8 of 8 sites | same bits | 158 of 160 | 19 | 1.0e-07 |"
        " nothing |"
    )
    assert "| the server, 0 of 8 sites | not over after 900 s (load 2) | – | – | – | – | – |" in made["consortium"][3]
    assert "3 different ones, up to 0.25 apart" in made["consortium"][4]
    assert made["consortium"][4].endswith("| 1 more start by the service manager; job begun again once |")
    assert made["deployments"][2] == "| gloo | torch 2 | all of it | does not apply: it has no keys |"
    assert made["faults"][2] == "| gloo | – | – | 8 of 8, 79/80, 100 s | failed: no / way | – | – | – |"


def test_a_run_replaces_the_one_before_it():
    from consortium.every import merged

    old = [{"name": "gloo", "hour_name": "bad", "seconds": 1}, {"name": "ours", "hour_name": "bad", "seconds": 2}]
    new = merged(
        merged(old, {"name": "gloo", "hour_name": "quiet"}), {"name": "ours", "hour_name": "bad", "seconds": 3}
    )
    assert [(one["name"], one["hour_name"]) for one in new] == [("gloo", "bad"), ("gloo", "quiet"), ("ours", "bad")]
    assert new[-1]["seconds"] == 3


def test_every_system_has_a_script_and_the_page_has_the_tables():
    from consortium.one import SYSTEMS, chosen

    for name in SYSTEMS:
        kind = chosen(name)
        assert kind.name
        assert kind.settings
        assert not kind.environment or (FOLDER / "environments" / f"{kind.environment}.txt").is_file()
    page = (FOLDER.parents[1] / "docs" / "evidence" / "comparison.md").read_text(encoding="utf-8")
    for name in ("consortium", "faults", "deployments"):
        assert f"<!-- end of {name} -->" in page


MACHINES = """
import json, signal, sys, tempfile, time
from pathlib import Path
from consortium.machines import Machines
from consortium.one import reap

reap()
machines, told = Machines(3, Path(tempfile.mkdtemp()), 2), {}
serve = "import socket; s = socket.create_server(('', 5000))\\nwhile True:\\n c = s.accept()[0]; c.sendall(c.recv(9))"
ask = (
    "import socket, sys, time; t = time.time(); c = socket.create_connection((sys.argv[1], 5000), 2);"
    "c.settimeout(2); c.sendall(b'x'); c.recv(1); sys.exit(7 if time.time() - t > 0.7 else 0)"
)
for k in (1, 2):
    machines.start(k, [sys.executable, "-c", serve], sys.stderr, {})

def reach(k):
    return machines.start(0, [sys.executable, "-c", ask, machines.addresses[k]], sys.stderr, {}).wait()

while reach(1) or reach(2) == 1:
    time.sleep(0.2)
for breaks in (True, False):
    machines.cut(0, 1, breaks=breaks)
    told[f"cut, breaks={breaks}"] = reach(1) == 1
    machines.mend(0, 1, breaks=breaks)
    told[f"mended, breaks={breaks}"] = reach(1) in (0, 7)
machines.line.slow = True
told["slow"] = reach(2) == 7
machines.fill(1)
try:
    (machines.disks[1] / "file").write_text("x")
except OSError as error:
    told["full"] = error.errno == 28
machines.clean(1)
(machines.disks[1] / "file").write_text("x")
machines.signal(1, signal.SIGKILL)
time.sleep(0.5)
told["killed"] = not machines.processes(1) and bool(machines.processes(2))
machines.close()
print(json.dumps(told))
"""


def test_machines_can_be_cut_off_slowed_filled_and_killed():
    from consortium.every import SPACES

    apart = ["unshare", *SPACES]
    try:
        allowed = subprocess.run([*apart, "true"], capture_output=True).returncode == 0
    except OSError:
        allowed = False
    if not allowed or not Path("/dev/net/tun").exists():
        pytest.skip("needs root on Linux, and /dev/net/tun")
    run = subprocess.run(
        [*apart, sys.executable, "-c", MACHINES], cwd=FOLDER, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert len(told) == 7
    assert all(told.values()), told
