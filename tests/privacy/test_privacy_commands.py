"""The commands audit and attack, as a user types them, with bad input too; and the gate before training."""

import json
import logging
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.designs import best
from securedfl.errors import PrivacyError
from securedfl.federation.config import TrainConfig
from securedfl.federation.gate import pass_gate, save_account
from securedfl.federation.methods import choose_design
from securedfl.federation.run_folder.metrics import Row
from securedfl.privacy.absence import Absence
from securedfl.privacy.ledger import Tried

RUNNER = CliRunner()


def call(line, code=0):
    result = RUNNER.invoke(app, line.split())
    assert result.exit_code == code, result.output
    return result


def as_json(line):
    return json.loads(call(f"{line} --json").stdout)


class TestAudit:
    def test_the_documented_example(self):
        found = as_json("audit --peers 9 --group-size 3 --protocol grouped --iterations 8 --collusion 1")
        assert found["arithmetic"] == "prime field, p = 2147483647"
        assert found["paper_bound"] == 7
        assert found["exposed_by_iteration"] == [0, 0, 0, 0, 2, 8, 8, 8]
        assert found["safe_iterations"] == 4
        assert (found["verdict"], found["kind"], found["exhaustive"]) == ("exposed", "perfect", True)
        assert found["worst_coalition"] == [0]

    @pytest.mark.parametrize(
        "arguments",
        [
            "--protocol paper --iterations 1",
            "--protocol classic",
            "--protocol plain",
            "--protocol shares --collusion 2",
            "--protocol shares --strength 2 --method symbols",
            "--protocol resilient",
            "--protocol paper --rho 3,3e-4,1",
            "--peers 12 --rounds 5",
        ],
    )
    def test_text(self, arguments):
        output = call(f"audit {arguments}").stdout
        assert "verdict" in output
        assert "only the total" in output

    @pytest.mark.parametrize(
        "settings",
        [
            {"peers": 5},
            {"peers": 6},
            {"peers": 6, "iterations": 30},
            {"peers": 9},
            {"peers": 27},
            {"peers": 10, "collusion": 2, "protocol": "shares"},
            {"peers": 9, "collusion": 7, "protocol": "shares"},
            {"peers": 9, "collusion": 2, "protocol": "resilient"},
        ],
    )
    def test_the_group_size_is_what_training_takes(self, settings):
        config = TrainConfig.resolve({"methods": "secured", **settings})
        arguments = " ".join(f"--{name} {value}" for name, value in settings.items())
        assert as_json(f"audit {arguments}")["design"] == choose_design(config).hash

    def test_group_sizes(self):
        assert as_json("audit --peers 6")["verdict"] == "only the total"
        assert as_json("audit --peers 6 --group-size 3")["verdict"] == "exposed"

    def test_resilient_takes_the_strength_that_withstands_the_colluders(self):
        found = as_json("audit --protocol resilient --collusion 2")
        assert (found["options"], found["verdict"]) == ({"strength": 3}, "only the total")
        weak = as_json("audit --protocol resilient --collusion 7 --group-size 3")
        assert weak["verdict"] == "exposed"

    def test_narrow_masks_are_named(self):
        output = call("audit --protocol paper --rho 1e9").stdout
        assert "1e-09 wide, TOO NARROW" in output
        assert "use a protocol with perfect masks" in output

    @pytest.mark.parametrize("text", ['{"secured": 3}', '{"verdict": 3}', '{"secured": {}}', "[]", "{"])
    def test_damaged_run_folders(self, text, tmp_path):
        save_account(tmp_path, TrainConfig.resolve({"methods": "secured"}), best(9, 3, 0), [])
        good = json.loads((tmp_path / "certificate.json").read_text())
        for damaged in (text, json.dumps({**good, "exposed_by_iteration": 3})):
            (tmp_path / "certificate.json").write_text(damaged)
            for option in ("", " --json"):
                call(f"audit --run {tmp_path}{option}", code=8)

    def test_symbols_and_components_agree(self):
        fast, slow = as_json("audit"), as_json("audit --method symbols")
        assert (fast["method"], slow["method"]) == ("components", "symbols")
        for key in ("verdict", "exposed", "partial_sums", "dimension", "exposed_by_iteration", "breaking"):
            assert fast[key] == slow[key]

    def test_svg_and_design_files(self, tmp_path):
        best(12, 3, 1).save(tmp_path / "d.json")
        picture = tmp_path / "who.svg"
        found = as_json(f"audit --design {tmp_path / 'd.json'} --svg {picture}")
        assert (found["peers"], found["design"]) == (12, best(12, 3, 1).hash)
        assert picture.read_text().startswith("<svg")

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            ("audit --protocol nonsense", 4, "known"),
            ("audit --collusion 9", 4, "1 to 8"),
            ("audit --design nowhere --collusion 9", 5, "cannot read"),
            ("audit --group-size 3 --collusion 9", 4, "1 to 8"),
            ("audit --group-size x", 4, "auto, or a number"),
            ("audit --group-size 1", 4, "auto, or a number"),
            ("audit --strength 3", 4, "--strength is not for the protocol grouped; it takes --iterations"),
            ("audit --run . --peers 9", 4, "leave --peers away"),
            ("audit --run . --protocol shares --svg x", 4, "leave --protocol, --svg away"),
            ("attack --collusion 9", 4, "1 to 8"),
            ("attack --strength 3", 4, "it takes --iterations, --rho"),
            ("audit --rho 1", 4, "--rho is not for the protocol grouped"),
            ("audit --protocol paper --rho x", 4, "START,DECAY,PERIOD"),
            ("audit --protocol paper --rho -1", 4, "positive"),
            ("audit --protocol paper --rho 1,2", 4, "START,DECAY,PERIOD"),
            ("audit --peers 1", 2, "peers"),
            ("audit --run nowhere", 8, "no run folder"),
            ("audit --run .", 8, "certificate.json"),
            ("audit --svg nowhere/x.svg", 8, "cannot write"),
            ("audit --design nowhere", 5, "cannot read"),
            ("audit --protocol shares --strength 9 --group-size 3", 4, "strength"),
            ("attack --coalition 0,99", 4, "0 to 8"),
            ("attack --coalition a", 4, "numbers"),
            ("attack --coalition 0,1,2,3,4,5,6,7,8", 4, "1 to 8"),
            ("attack --picture x.gif", 4, ".png or .svg"),
            ("attack --picture nowhere/x.png", 8, "cannot write"),
            ("attack --rounds 3", 4, "--protocol paper"),
            ("attack --protocol paper --rounds 3 --iterations 3", 4, "2 iterations"),
            ("attack --protocol paper --rounds 3 --rho 3,0.1,1", 4, "constant"),
            ("attack --protocol paper --rounds 3 --collusion 2", 4, "--rounds attacks with one peer"),
            ("attack --picture x.png --protocol paper --peers 5", 4, "leave --protocol, --peers away"),
            ("attack --parameters 0", 2, "parameters"),
        ],
    )
    def test_bad_input(self, arguments, code, words):
        result = call(arguments, code=code)
        assert words in " ".join((result.output + getattr(result, "stderr", "")).split())


class TestAttack:
    def test_the_documented_example(self):
        found = as_json("attack --protocol classic --peers 9 --iterations 2 --parameters 100000")
        assert found["recovered"] == 8
        assert found["max_abs_error"] < 1e-4

    @pytest.mark.parametrize(
        ("arguments", "recovered"),
        [
            ("--protocol grouped", 0),
            ("--protocol grouped --iterations 5", 2),
            ("--protocol grouped --iterations 6", 8),
            ("--protocol grouped --collusion 2", 2),
            ("--protocol paper --iterations 5", 2),
            ("--protocol paper --iterations 6", 8),
            ("--protocol plain", 8),
            ("--protocol plain --coalition 3", 0),
            ("--protocol shares --strength 3 --collusion 2", 0),
            ("--protocol shares --strength 2 --collusion 2 --dtype float64", 2),
            ("--iterations 1", 0),
        ],
    )
    def test_recovers_what_the_audit_says(self, arguments, recovered):
        found = as_json(f"attack --parameters 500 {arguments}")
        if "shares" not in arguments:  # there, slices decide which of the audit's coalitions get through
            assert found["recovered"] == recovered
        assert found["recovered_peers"] == found["claimed_peers"] == found["exposed_by_audit"]
        assert (found["max_abs_error"] is None) == (not found["recovered"])

    def test_rounding_that_drowns_the_result_is_said(self):
        output = call("attack --protocol paper --iterations 6 --rho 1e-6 --parameters 500").stdout
        assert "recovered       0 peers" in output
        assert "8 exposed" in output
        assert "drowned" in output

    def test_guesses_from_narrow_masks_are_called_so(self):
        found = as_json("attack --protocol paper --rho 100 --parameters 100")
        assert found["exposed_by_audit"] == []
        assert found["recovered_peers"] == found["guessed_peers"] == [2, 8]
        assert "masks are only 0.01 wide" in found["guessed_because"]
        output = call("attack --protocol paper --rho 100 --parameters 100").stdout
        assert "peers [2, 8] are not computed, but guessed near enough: masks are only 0.01 wide" in output
        assert as_json("attack --protocol plain --parameters 100")["guessed_because"] is None

    def test_rounds(self):
        found = as_json("attack --protocol paper --rounds 12 --parameters 100")
        assert found["neighbours_fixed"]["messages"] == 12
        assert found["partitions_rotate"]["messages"] == 6
        assert found["neighbours_fixed"]["width"] < found["partitions_rotate"]["width"] < found["mask_width"]
        output = call("attack --protocol paper --rounds 3 --parameters 100 --coalition 4").stdout
        assert "fixed" in output
        assert "Peer 4 attacks a neighbour" in output


class TestGate:
    def config(self, **values):
        return TrainConfig.resolve({"methods": "secured", **values})

    def test_default_settings_pass(self):
        (found,) = pass_gate(self.config(), best(9, 3, 0))
        assert (found.certificate.verdict, found.certificate.rounds) == ("only the total", 21)
        assert (found.required_collusion, found.allow_exposure) == (1, False)
        assert "simulation" in found.to_dict()["remark"]
        (secret,) = pass_gate(self.config(masks="secret"), best(9, 3, 0))
        assert "remark" not in secret.to_dict()

    @pytest.mark.parametrize("values", [{"iterations": 5}, {"protocol": "classic"}, {"collusion": 2}])
    def test_exposing_settings_are_refused_unless_allowed(self, values, caplog):
        with pytest.raises(PrivacyError, match="allow_exposure starts all the same"):
            pass_gate(self.config(**values), best(9, 3, 0))
        with caplog.at_level(logging.WARNING):
            (found,) = pass_gate(self.config(allow_exposure=True, **values), best(9, 3, 0))
        assert (found.certificate.verdict, found.allow_exposure) == ("exposed", True)
        assert "exposure is allowed" in caplog.text

    def test_narrow_masks_are_refused_unless_the_paper_is_repeated(self, tmp_path, caplog):
        with pytest.raises(PrivacyError, match="masks are only 2e-18 wide"):
            pass_gate(self.config(protocol="paper", rho=1e9), best(9, 3, 0))
        result = call(f"train --protocol paper --rho 1e9 --out {tmp_path / 'run'}", code=6)
        assert "the same behind perfect masks" in " ".join((result.output + getattr(result, "stderr", "")).split())
        with caplog.at_level(logging.WARNING):
            (found,) = pass_gate(self.config(methods="paper"), best(9, 3, 0))
        assert "do not protect the peers: masks are only" in found.sentence
        assert "can recognise it in a single message" in caplog.text

    def test_the_certificate_says_what_holds_over_rounds(self):
        (found,) = pass_gate(self.config(), best(9, 3, 0))
        assert found.sentence.endswith(found.over_rounds)
        assert "totals of several rounds give no other sums" in found.over_rounds
        (going_on,) = pass_gate(self.config(protocol="shares"), best(9, 3, 0), Absence(policy="go on"))
        assert "tell that peer's update" in going_on.sentence

    def test_it_says_so_where_parts_of_sums_or_weights_add_up(self):
        (planes,) = pass_gate(self.config(peers=27, group_size=3, protocol="shares"), best(27, 3, 0))
        (sums,) = pass_gate(self.config(peers=27, group_size=3), best(27, 3, 0))
        assert (planes.certificate.verdict, sums.certificate.verdict) == ("only the total", "partial sums")
        told = "may tell a single peer's update"
        assert (told in planes.over_rounds, told in sums.over_rounds) == (False, True)
        (weighted,) = pass_gate(self.config(weighted=True), best(9, 3, 0), Absence(policy="go on"))
        assert "total of the members' weights" in weighted.sentence
        assert "weights" not in planes.sentence

    def test_the_run_is_shown_with_what_holds_over_rounds(self, tmp_path):
        config, design = self.config(rounds=1, protocol="shares"), best(9, 3, 0)
        save_account(tmp_path, config, design, [], Absence(policy="go on"))
        output = " ".join(call(f"audit --run {tmp_path}").stdout.split())
        assert "averages go on without peers that are missing" in output

    def test_irregular_averages_are_one_line_per_round_with_names(self, tmp_path):
        config, design = self.config(rounds=2, protocol="shares"), best(9, 3, 0)
        everybody, most = tuple(range(9)), tuple(range(8))
        tried = [(Tried(0, 0, everybody, True),), (Tried(0, 0, everybody, False), Tried(0, 1, most, True))]
        rows = [Row(method="secured", round=r, accuracy=0.5, loss=1.0, tried=one) for r, one in enumerate(tried)]
        save_account(tmp_path, config, design, rows, Absence(policy="go on"))
        lines = [line.strip() for line in call(f"audit --run {tmp_path}").stdout.splitlines()]
        assert "irregular averages                 1" in lines
        assert "round 1: all, not opened; then 0, 1, 2, 3, 4, 5, 6, 7, opened" in lines
        assert "smallest sum over rounds           8" in lines
        roster = {str(peer): f"p{peer}" for peer in everybody}
        (tmp_path / "summary.json").write_text(json.dumps({"peers": 9, "rounds": 2, "roster": roster}))
        lines = [line.strip() for line in call(f"audit --run {tmp_path}").stdout.splitlines()]
        assert "round 1: all, not opened; then p0, p1, p2, p3, p4, p5, p6, p7, opened" in lines
        assert "smallest sum over rounds           p8" in lines

    def test_nothing_to_withstand(self):
        (found,) = pass_gate(self.config(protocol="classic", collusion=0), best(9, 3, 0))
        assert found.certificate.verdict == "exposed"

    def test_baselines_promise_nothing(self):
        assert pass_gate(self.config(methods="local,fedavg"), best(9, 3, 0)) == ()

    def test_the_run_folder_gets_certificate_picture_and_ledger(self, tmp_path):
        config, design = self.config(rounds=3), best(9, 3, 0)
        done = [("secured", 0), ("secured", 1), ("secured", 2), ("secured", 3), ("local", 0)]
        rows = [Row(method=method, round=r, accuracy=0.5, loss=1.0) for method, r in done]
        save_account(tmp_path, config, design, rows)
        assert json.loads((tmp_path / "certificate.json").read_text())["design"] == design.hash
        assert json.loads((tmp_path / "ledger.json").read_text())["attempts"] == 4
        assert (tmp_path / "exposure.svg").read_text().startswith("<svg")
        output = call(f"audit --run {tmp_path}").stdout
        assert "only the total" in output
        assert "Ledger" in output
        assert as_json(f"audit --run {tmp_path}")["ledger"]["averages"] == 4


def test_the_package_is_light():
    code = "import sys, securedfl.attacks.solving; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_images_are_stolen_from_all_to_all_and_not_from_groups():
    pytest.importorskip("torch")
    from securedfl.attacks.demonstration import steal_images

    theft = steal_images()
    assert (theft.recovered, theft.recovered_protected) == (8, 0)
    assert abs(theft.true - theft.stolen).max() < 1e-4
    assert abs(theft.true - theft.protected).max() > 0.5


def test_the_picture(tmp_path):
    pytest.importorskip("torch")
    found = as_json(f"attack --picture {tmp_path / 'stolen.png'}")
    assert (found["images_stolen"], found["filters_stolen"], found["images_stolen_from_grouped"]) == (8, 8, 0)
    assert (tmp_path / "stolen.png").stat().st_size > 10_000
