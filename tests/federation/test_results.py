"""What can be used of a run: the model by name, securedfl.load, the model card, and accuracies that do not mislead."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import securedfl
from securedfl.designs import best
from securedfl.errors import ConfigError, RunFolderError
from securedfl.federation.config import TrainConfig
from securedfl.federation.gate import pass_gate
from securedfl.federation.methods import main_method
from securedfl.federation.peers.leaving import settings_of
from securedfl.federation.run_folder.card import card
from securedfl.federation.run_folder.files import read_config
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.run_folder.model import MODEL, About, common_parts, read_model, save_model
from securedfl.federation.run_folder.reader import read_run
from securedfl.federation.run_folder.summary import MethodSummary, Samples, Summary, read_summary
from securedfl.federation.task import make_task
from securedfl.learning.slices import Slices
from securedfl.privacy.budget.words import PrivacyPromise
from securedfl.reporting.report import report
from tests.federation.test_protection import SITE

SKEWED = {"dealing": "dirichlet", "alpha": 0.3, "model": "linear", "rounds": 2, "optimizer": "adam", "workers": 1}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / "run"
    securedfl.train(**SKEWED, methods="local,fedavg,secured", out=str(folder))
    return folder


@pytest.fixture(scope="module")
def personal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("personal") / "run"
    securedfl.train(**SKEWED, methods="fedavg,secured", out=str(folder), local="1.bias")
    return folder


def last(folder, method):
    return next(row for row in reversed(read_rows(folder, Row)) if row.method == method)


def accuracy(model, x, y):
    with torch.inference_mode():
        return float((model(torch.from_numpy(x)).argmax(1).numpy() == y).mean())


def test_a_run_leaves_its_model_by_the_names_of_its_parameters(plain):
    assert sorted(load_file(plain / "model.safetensors")) == ["1.bias", "1.weight"]
    assert (plain / "model-fedavg.safetensors").exists()
    assert not (plain / "model-local.safetensors").exists()  # every peer has its own
    _, about = read_model(plain / "model.safetensors")
    assert about == About(method="secured", round=2, model="linear", shape=(1, 8, 8), classes=10)


@pytest.mark.parametrize("method", [None, "secured", "fedavg"])
def test_the_loaded_model_scores_as_the_run_did(plain, method):
    model = securedfl.load(plain, method)
    assert not model.training
    x, y = make_task(read_config(plain)).all_tests()
    assert accuracy(model, x, y) == pytest.approx(last(plain, method or "secured").accuracy)


def test_a_peers_own_model_scores_as_in_the_run(plain, personal):
    for folder, method in ((plain, "local"), (personal, "secured"), (personal, "fedavg")):
        task, row = make_task(read_config(folder)), last(folder, method)
        for peer in (0, 5):
            data = Slices(task.dataset, {peer: task.dealt[peer]})[peer]
            model = securedfl.load(folder, method, peer=peer)
            assert accuracy(model, data.test_x, data.test_y) == pytest.approx(row.peer_accuracy[peer])
            assert accuracy(model, *task.all_tests()) == pytest.approx(row.all_accuracy[peer])


def test_ones_own_model_is_filled(plain, personal):
    mine = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    assert securedfl.load(plain, model=mine) is mine
    torch.testing.assert_close(mine.state_dict(), dict(load_file(plain / "model.safetensors")))
    arrays = {"1.weight": np.zeros((10, 64), np.float32), "1.bias": np.full(10, 7, np.float32)}
    securedfl.load(personal, model=arrays)
    assert arrays["1.weight"].any()
    assert (arrays["1.bias"] == 7).all()  # personal, so it stays
    theirs = securedfl.load(personal, peer=3, model=nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    torch.testing.assert_close(theirs.state_dict(), securedfl.load(personal, peer=3).state_dict())


def test_what_cannot_be_loaded_says_what_to_do(plain, personal, tmp_path):
    with pytest.raises(ConfigError, match=r"1.bias of the model .* differ from peer to peer; say whose"):
        securedfl.load(personal)
    with pytest.raises(ConfigError, match="peers 0 to 8"):
        securedfl.load(personal, peer=9)
    with pytest.raises(ConfigError, match=r"unknown method of the run in .* 'fedav'; did you mean 'fedavg'\?"):
        securedfl.load(plain, "fedav")
    with pytest.raises(ConfigError, match=r"unknown method of the run in .* 3 \(known: "):
        securedfl.load(plain, 3)
    with pytest.raises(ConfigError, match="the peer must be a whole number, not 'first'"):
        securedfl.load(personal, peer="first")
    with pytest.raises(RunFolderError, match="there is no run folder"):
        securedfl.load(tmp_path / "nothing")
    with pytest.raises(ConfigError, match=r"'1.weight' is \(10, 64\) in the run and \(10, 63\)"):
        securedfl.load(plain, model=nn.Sequential(nn.Flatten(), nn.Linear(63, 10)))
    with pytest.raises(ConfigError, match=r"no '1\.bias'"):
        securedfl.load(plain, model=nn.Linear(64, 10))
    (tmp_path / "model.safetensors").write_bytes((plain / "model.safetensors").read_bytes()[:-9])
    with pytest.raises(RunFolderError, match="restore it from a copy"):
        securedfl.load(tmp_path)


def test_models_of_entry_points_come_back_by_name_and_dtype(tmp_path):
    model = {"a": torch.ones(2, 3, dtype=torch.bfloat16), "n": torch.tensor(4), "e": torch.zeros(0, 2)}
    save_model(tmp_path / "model.safetensors", model, About(method="secured", round=3))
    found = securedfl.load(tmp_path)
    assert {name: (value.dtype, value.shape) for name, value in found.items()} == {
        name: (value.dtype, value.shape) for name, value in model.items()
    }
    assert torch.equal(found["a"], model["a"])


def test_what_peers_have_in_common():
    one = {"w": np.ones(2), "head": np.zeros(2), "steps": np.array(3)}
    other = {"w": np.ones(2), "head": np.ones(2), "steps": np.array(4)}
    common, own = common_parts([one, other])
    assert own == ("head",)
    assert sorted(common) == ["steps", "w"]


def test_local_only_is_not_flattered_by_skewed_labels(plain, personal):
    """On its own few labels every peer's own model does well; on everybody's data it does not."""
    summary = read_summary(plain)
    local = summary.methods["local"]
    assert local.all_accuracy < local.final_accuracy - 0.1
    assert summary.methods["secured"].all_accuracy is None  # the same model everywhere
    page = report(read_run(plain))
    assert "Local-Only, all" in page
    assert "where a model that knows few labels can do well" in page
    assert report(read_run(personal)).count("SecureD-FL, all") == 1


def test_the_card_says_what_a_reader_must_know(plain, personal):
    text = (plain / "README.md").read_text()
    front, body = text.split("---\n")[1:]
    summary = json.loads((plain / "summary.json").read_text())
    assert f'design: "{summary["design"]["hash"]}"' in front
    assert "peers: 9" in front
    assert f"accuracy: {summary['methods']['secured']['final_accuracy']:.6g}" in front
    assert f"{summary['samples']['train']:,} samples for training" in body
    assert summary["certificate"]["sentence"] in body
    assert body.count("\n| ") == 1 + 9
    assert "All peers hold the same model" in body
    assert "no differential privacy" in body
    assert "| peer | own | all |" in (personal / "README.md").read_text()


def test_the_card_of_a_run_with_a_budget_and_of_one_without_a_round():
    method = MethodSummary(label="SecureD-FL", rounds=2, final_accuracy=0.5, epsilon=1.25)
    samples = Samples(train=9, test=3)
    summary = Summary(peers=3, rounds=2, samples=samples, methods={"secured": method})
    (certificate,) = pass_gate(TrainConfig.resolve({"methods": "secured"}), best(9, 3))
    promised = replace(certificate, promise=PrivacyPromise.of(SITE), sentence="All is well.")
    row = Row(method="secured", round=2, accuracy=0.5, peer_accuracy=(0.5,) * 3)
    text = card(summary, [row], promised, "secured")
    assert "epsilon: 1.25" in text
    assert f"Differential privacy: epsilon 1.25, delta {SITE.delta:g}." in text
    assert "All is well." in text
    assert certificate.remark in text
    empty = Summary(peers=3, rounds=2, methods={"secured": MethodSummary(label="SecureD-FL")})
    assert "No round was scored." in card(empty, [], None, "secured")
    assert "No certificate" in card(empty, [], None, "secured")


ABOUT = {"method": "secured", "model": "linear", "shape": [1, 8, 8], "classes": 10}
HOSTILE = {
    "not JSON": "{",
    "a list": "[]",
    "deep": "[" * 100_000,
    "text for a number": json.dumps({**ABOUT, "classes": "10"}),
    "a number for text": json.dumps({**ABOUT, "method": 5}),
    "a path for a method": json.dumps({**ABOUT, "method": "../../secret"}),
    "no method": "{}",
    "another shape": json.dumps({**ABOUT, "shape": [1, 9, 9]}),
    "negative": json.dumps({**ABOUT, "classes": -3}),
    "huge": json.dumps({**ABOUT, "shape": [10**6, 10**6, 10**6]}),
    "large": json.dumps({**ABOUT, "classes": 10**8}),
    "wide": json.dumps({**ABOUT, "model": "mlp", "width": 1e300}),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_model_with_hostile_metadata_is_refused_by_name(tmp_path, text):
    save_file(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).state_dict(), tmp_path / MODEL, {"securedfl": text})
    with pytest.raises(RunFolderError, match=r"model\.safetensors is damaged \(.*\); restore it from a copy"):
        securedfl.load(tmp_path)


@pytest.mark.parametrize(
    ("methods", "main"),
    [
        (["local", "fedavg", "paper", "secured"], "secured"),
        (["local", "shares", "secured"], "shares"),
        (["local", "fedavg", "paper"], "paper"),
        (["local", "fedavg"], "fedavg"),
        (["fedavg", "of another version"], "of another version"),
    ],
)
def test_model_card_and_report_are_of_the_same_method(methods, main):
    assert main_method(methods) == main


def test_a_loop_of_ones_own_is_not_told_to_train_digits():
    values = {"peers": 3, "rounds": 2, "protocol": "shares", "dealing": "dirichlet"}
    config = TrainConfig.resolve(values)
    own = settings_of(config, values)
    assert own["dataset"] == ""
    assert not {"dataset", "model", "alpha", "peers"} & own["config"].keys()
    assert (own["config"]["rounds"], own["config"]["dealing"]) == (2, "dirichlet")
    known = settings_of(config, config.to_dict())
    assert (known["dataset"], known["config"]["model"]) == ("digits", "cnn-small")
    app = settings_of(TrainConfig.resolve({"peers": 3, "entry": "app:make"}), ())
    assert (app["dataset"], app["config"]["entry"], "dealing" in app["config"]) == ("app:make", "app:make", False)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["arrays", "tensors"])
def test_the_same_model_has_the_same_bytes_at_all_sites(tmp_path, kind):
    """Sites compare their files by a hash."""
    model = {"w": kind(np.arange(6.0, dtype=np.float32).reshape(2, 3)), "b": kind(np.array([1, 2]))}
    written = set()
    for site in range(20):
        path = tmp_path / f"{site}.safetensors"
        save_model(path, model, About(method="secured", round=3))
        written.add(path.read_bytes())
    assert len(written) == 1
    read, about = read_model(path)
    assert (about.round, list(read["w"].shape)) == (3, [2, 3])
