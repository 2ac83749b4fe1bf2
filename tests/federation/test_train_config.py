"""Settings: defaults, TOML in and out, and every way to get them wrong."""

from pathlib import Path

import numpy as np
import pytest

from securedfl import App, train
from securedfl.errors import ConfigError, DesignError, InvalidInputError
from securedfl.federation.config import TrainConfig
from securedfl.federation.gate import pass_gate, settle
from securedfl.federation.identity import fingerprint
from securedfl.federation.methods import averaging_of, choose_design, method, protocol_of
from securedfl.federation.run_folder.files import read_config
from securedfl.federation.settings import RhoSchedule, read_toml
from securedfl.protocols import DEFAULT_RHO, Schedule

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


def test_defaults_are_the_demonstration():
    config = TrainConfig.resolve({})
    assert (config.dataset, config.peers, config.rounds, config.seed) == ("digits", 9, 20, 0)
    assert config.methods == ("local", "fedavg", "secured")
    assert (config.protocol, config.iterations, config.finish) == ("grouped", 2, "exact")
    assert (config.masks, config.weighted, config.collusion) == ("seeded", False, 1)
    assert config.schedule() == Schedule(start=DEFAULT_RHO)


def test_the_resolved_toml_reads_back_as_the_same_settings(tmp_path):
    given = {
        "peers": 12,
        "rho": {"start": 3, "decay": 3e-4},
        "workers": 2,
        "out": "runs/x",
        "methods": "fedavg, local",
    }
    config = TrainConfig.resolve(given)
    (tmp_path / "c.toml").write_text(config.to_toml())
    again = TrainConfig.resolve(read_toml(tmp_path / "c.toml"))
    assert again == config.model_copy(update={"out": None})  # so that the file can start another run
    assert again.rho == RhoSchedule(start=3, decay=3e-4, period=1)
    assert again.methods == ("fedavg", "local")
    assert again.schedule()[1] == pytest.approx(9e-4)


def test_the_fingerprint_stays_what_it_is():
    """Checkpoints carry it, so that run folders go on."""
    config = TrainConfig.resolve({"methods": "local,fedavg,secured,shares"})
    assert fingerprint(config.model_copy(update={"initial": "own"})) == "c75a64862b5eae13"
    assert fingerprint(config) == "2426aa55d4f72938"


def test_run_folders_of_before_begin_with_own_parameters(tmp_path):
    (tmp_path / "config.toml").write_text('methods = ["local", "fedavg", "secured", "shares"]\n')
    assert read_config(tmp_path).initial == "own"
    assert fingerprint(read_config(tmp_path)) == "c75a64862b5eae13"


def test_a_cosine_ends_with_the_run_unless_told_otherwise_and_the_settings_say_when():
    cosine = {"learning_rate_schedule": "cosine", "rounds": 30}
    assert TrainConfig.resolve(cosine).learning_rate_period == 30
    assert TrainConfig.resolve(cosine | {"learning_rate_period": 12}).learning_rate_period == 12
    assert "learning_rate_period = 30" in TrainConfig.resolve(cosine).to_toml()


def test_the_fingerprint_covers_what_changes_numbers_and_nothing_else():
    base = TrainConfig.resolve({})
    same = TrainConfig.resolve({"workers": 7, "out": "elsewhere", "checkpoint_every": 5, "tensorboard": True})
    assert fingerprint(same) == fingerprint(base)
    for change in ({"seed": 1}, {"rho": 0.5}, {"weighted": True}, {"local": "0.*"}, {"integers": "average"}):
        assert fingerprint(TrainConfig.resolve(change)) != fingerprint(base)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pers": 9}, "unknown key 'pers' in the settings; did you mean 'peers'"),
        ({"learning-rate": 1}, "did you mean 'learning_rate'"),
        ({"initial": "same"}, "initial = 'same' in the settings: must be 'common' or 'own'"),
        ({"steps": 5, "epochs": 3}, "give one of them"),
        ({"device": "gpu"}, "device = 'gpu'"),
        ({"precision": "float16"}, "must be 'float32' or 'bfloat16'"),
        ({"proximal": -1.0}, "proximal = -1.0"),
        ({"rho": {"strat": 1}}, "unknown key 'strat' in rho .* did you mean 'start'"),
        ({"qqqq": 9}, "unknown key 'qqqq' .* known: address, allow_exposure"),
        ({"peers": "9"}, "peers = '9' .* must be a whole number"),
        ({"peers": True}, "peers = True .* must be a whole number"),
        ({"peers": 1}, "peers = 1 .* at least 3 peers"),
        ({"rounds": 0}, "rounds = 0"),
        ({"rounds": 2.5}, "rounds = 2.5"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 2**63}, "must be less than 9223372036854775808"),
        ({"learning_rate": float("nan")}, "learning_rate = nan .* must be a finite number"),
        ({"weighted": 1}, "weighted = 1 .* must be true or false"),
        ({"rho": "big"}, "rho = 'big' .* must be a number or a table with start, decay and period"),
        ({"rho": -1.0}, "rho's start must be a positive finite number"),
        ({"rho": float("nan")}, "rho = nan .* must be a finite number"),
        ({"rho": {"start": 0}}, "rho.start = 0 .* greater than 0"),
        ({"integers": "maximum"}, 'a maximum is no sum.* Use "own" .* or "average"'),
        ({"integers": 1}, r"unknown value of integers '1' \(known: average, own\)"),
        ({"workers": 0}, "workers = 0 .* must be 'auto' or greater than or equal to 1"),
        ({"engine": "rays"}, "engine = 'rays' .* must be 'local' or 'ray'"),
        ({"address": "auto"}, "address = 'auto' .* is that of a Ray cluster; set engine to \"ray\", too"),
        ({"engine": "ray", "address": "ray://a:1"}, "address = 'ray://a:1' .* must be auto, or HOST:PORT"),
        ({"engine": "ray", "address": "head"}, "address = 'head' .* must be auto, or HOST:PORT"),
        ({"engine": "ray", "device": "cuda:1"}, 'gives every worker a GPU of its own; set device to "cuda"'),
        ({"dealing": "odd"}, "dealing = 'odd' .* must be 'even', 'natural' or 'dirichlet'"),
        ({"partition": "even"}, "'partition' in the settings is called 'dealing' now; rename it"),
        ({"learning_rate": float("inf")}, "learning_rate = inf"),
        ({"methods": []}, r"methods = \(\) .* must be at least one name"),
        ({"methods": "local,local"}, "names one twice"),
        ({"methods": 3}, "methods = 3"),
        ({"dataset": "digit"}, "unknown data set 'digit'; did you mean 'digits'"),
        ({"dataset": 5}, "dataset = 5 .* must be text"),
    ],
)
def test_wrong_settings_say_what_is_wrong(values, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig.resolve(values)


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379", "head.example.org:6379", "[::1]:6379"])
def test_addresses_of_clusters(address):
    config = TrainConfig.resolve({"engine": "ray", "address": address})
    assert config.address == address
    # neither changes a number
    assert fingerprint(config) == fingerprint(TrainConfig.resolve({}))


def test_several_wrong_settings_are_told_at_once():
    with pytest.raises(ConfigError, match=r"peers = 'a'.*; rounds = 'b'"):
        TrainConfig.resolve({"peers": "a", "rounds": "b"})


@pytest.mark.parametrize(("text", "message"), [("peers = = 9", "not valid TOML.*line 1"), (None, "cannot read")])
def test_unreadable_files_are_errors(tmp_path, text, message):
    if text is not None:
        (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_toml(tmp_path / "c.toml")


def test_methods_choose_their_protocols():
    config = TrainConfig.resolve({"protocol": "classic", "iterations": 3})
    assert protocol_of(config, "local") is None
    assert [protocol_of(config, name).name for name in ("fedavg", "secured")] == ["plain", "classic"]
    with pytest.raises(ConfigError, match="unknown method 'fedvg'; did you mean 'fedavg'"):
        method("fedvg")
    with pytest.raises(ConfigError, match="unknown protocol 'nope'"):
        averaging_of(TrainConfig.resolve({"protocol": "nope"}), "secured", choose_design(config))
    with pytest.raises(ConfigError, match="1 iterations are too few"):
        averaging_of(TrainConfig.resolve({"iterations": 1}), "secured", choose_design(config))
    with pytest.raises(ConfigError, match="the method 'local' does not average"):
        averaging_of(config, "local", choose_design(config))


def test_designs_by_name_by_file_and_not_at_all(tmp_path):
    def chosen(**settings):
        return choose_design(TrainConfig.resolve(settings))

    best = chosen()
    assert best.gap == 4
    best.save(tmp_path / "d.json")
    assert chosen(design=str(tmp_path / "d.json")) == best
    assert chosen(design="randomized").n == 9
    with pytest.raises(ValueError, match="is for 9 peers, but 12 take part"):
        chosen(design=str(tmp_path / "d.json"), peers=12)
    assert chosen(peers=2, methods="local,fedavg").gap == 1


@pytest.mark.parametrize(
    ("peers", "settings", "size"),
    [
        (9, {}, 3),
        (9, {"group_size": 2}, 2),
        (6, {}, 2),  # threes have no second partition
        (6, {"group_size": 3}, 3),
        (6, {"methods": "shares"}, 2),
        # no size protects five peers in two iterations; the gate explains
        (5, {}, 3),
        # the affine space's partitions into threes never mix: a lone peer would learn partial sums
        (27, {}, 5),
        (27, {"collusion": 0}, 3),
    ],
)
def test_auto_takes_the_group_size_that_protects_best(peers, settings, size):
    assert choose_design(TrainConfig.resolve({"peers": peers, **settings})).group_size == size


@pytest.mark.parametrize("methods", ["secured", "paper,secured,shares"])
@pytest.mark.parametrize("peers", [3, 5])
def test_where_grouped_is_too_weak_shares_take_its_place_and_that_is_told(peers, methods, caplog):
    """No design has two partitions of five peers that protect them; what is certified is what runs."""
    config, design = settle(TrainConfig.resolve({"peers": peers, "methods": methods}))
    assert config.protocol == "shares"
    assert f"cannot protect {peers} peers against 1 of them" in caplog.text
    certificate = next(promise.certificate for promise in pass_gate(config, design) if promise.method == "secured")
    assert (certificate.protocol, certificate.verdict) == ("shares", "only the total")


@pytest.mark.parametrize(
    ("settings", "protocol"),
    [
        ({"peers": 9}, "grouped"),
        ({"peers": 9, "collusion": 2}, "shares"),
        # what was chosen stays, and is refused
        ({"peers": 5, "protocol": "grouped"}, "grouped"),
        ({"peers": 5, "iterations": 2}, "grouped"),
        ({"peers": 5, "allow_exposure": True}, "grouped"),
        ({"peers": 5, "group_size": 3}, "grouped"),
        ({"peers": 5, "methods": "local,fedavg"}, "grouped"),
    ],
)
def test_another_protocol_only_where_it_helps(settings, protocol):
    assert settle(TrainConfig.resolve(settings))[0].protocol == protocol


def test_too_few_peers_are_told_how_many_it_takes():
    with pytest.raises(ConfigError, match="peers = 1 in the settings: a private average needs at least 3 peers"):
        TrainConfig.resolve({"peers": 1})
    with pytest.raises(DesignError, match=r"2 peers are too few.*at least 3 peers, or compare without privacy"):
        settle(TrainConfig.resolve({"peers": 2}))


@pytest.mark.parametrize(
    ("app", "error", "message"),
    [
        ({"data": []}, InvalidInputError, "weights add up to zero"),
        ({"data": [1], "samples": -1}, ConfigError, "samples of .* must be a whole number, 0 or more, not -1"),
        ({"data": [1], "samples": 1.5}, ConfigError, "samples of .* must be a whole number"),
    ],
)
def test_samples_of_an_app_that_make_no_weights(tmp_path, app, error, message):
    made = App(model={"w": np.zeros(2)}, update=lambda model, data, round: None, **app)
    with pytest.raises(error, match=message):
        train(lambda settings: made, peers=4, rounds=1, methods="secured", weighted=True, out=tmp_path / "run")


@pytest.mark.parametrize("path", ["./wine", "./wine.csv", "wine.tsv.gz", "~/data/wine.CSV.GZ"])
def test_a_table_is_called_by_its_name_without_endings(path):
    assert TrainConfig.resolve({"dataset": path, "model": "mlp"}).subject == "wine"


def test_every_key_is_documented():
    text = DOCS.read_text()
    assert [key for key in TrainConfig.model_fields if f"`{key}`" not in text] == []
