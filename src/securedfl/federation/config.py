"""Settings of a training run: from TOML and the command line, checked, and written back as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import Field, PlainSerializer

from securedfl.designs.sizes import MOST_PEERS
from securedfl.errors import ConfigError
from securedfl.federation.settings import (
    NamesOption,
    PathOption,
    PrivacySettings,
    RhoSchedule,
    StrictSettings,
    TableOption,
    check_cluster,
    check_keys,
    read_names,
)
from securedfl.learning.data.datasets import names, source
from securedfl.learning.data.folder import is_path, name_of
from securedfl.learning.data.tables.arrays import Columns
from securedfl.learning.training.common_optimizer import RATES, CommonOptimizer, Kind, check_common
from securedfl.learning.training.task import BetweenRounds, Engine, Initial, Precision, RateSchedule, TrainingOptions
from securedfl.parameters import Integers, check_integers
from securedfl.protocols import DEFAULT_RHO, Protocol, Schedule

ALL_MESSAGES = 30
"""Members up to which a simulation passes the messages of all rounds, unless asked not to."""

MESSAGES_EVERY = 100
"""Rounds between two whose messages are passed, among more members than that."""

OF_DATASETS = ("dataset", "label", "user", "features", "held_back", "data_dir", "model", "width", "fraction")
"""Settings of known data sets and their models: an app has its own."""

ProtocolOption = Annotated[
    str | Protocol, PlainSerializer(lambda given: getattr(given, "name", given), return_type=str)
]
"""The name of a protocol, or one of the user's own, which files know by its name."""

Device = Annotated[str, Field(pattern=r"^(cpu|mps|cuda(:\d{1,3})?)$")]
"""A device of PyTorch's."""


def _columns(values: Mapping[str, Any]) -> Columns:
    return Columns(
        label=values.get("label"), user=values.get("user"), features=tuple(read_names(values.get("features", ())))
    )


class TrainConfig(StrictSettings):
    """Everything that decides a run. Each field is a key of the TOML file and an option of ``securedfl train``.

    Make one with `resolve`, which fills in the defaults of the data set and explains what is wrong.

    Examples
    --------
    >>> import securedfl
    >>> config = securedfl.TrainConfig.resolve({"peers": 15, "protocol": "shares", "collusion": 2})
    >>> config.rounds, config.model
    (20, 'cnn-small')
    """

    dataset: str = Field("digits", description="Data set to train on: a name, or a folder of your own.")
    label: str | None = Field(None, description="Of a folder with tables: the column of the class; by default label.")
    user: str | None = Field(None, description="Of a folder with tables: the column that says whom a row is from.")
    features: NamesOption = Field(
        (), description="Of a folder with tables: the columns to learn from; by default all that can be."
    )
    held_back: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Part of the samples that no peer gets, to score all on the same test data; for a folder without "
        "test files the default is 0.1.",
    )
    data_dir: PathOption | None = Field(None, description="Folder of the data set, where it needs one.")
    entry: str | None = Field(None, description="module:function that makes an app, instead of a data set and model.")
    data: TableOption | None = Field(None, description="Handed to the app; {name} and {number} are those of the peer.")
    peers: int = Field(9, ge=2, le=MOST_PEERS, description="Number of peers.")
    peers_per_round: int | None = Field(
        None, ge=3, description="Peers that a round draws to train and average, in blocks; by default all."
    )
    between_rounds: BetweenRounds = Field(
        "keep",
        description="Of a peer's optimiser and what it rounded off: kept for the next round in which it trains, or "
        "not. Where peers are drawn, forget is the default.",
    )
    rounds: int = Field(20, ge=1, description="Rounds of federated learning.")
    methods: NamesOption = Field(
        ("local", "fedavg", "secured"), min_length=1, description="Methods to compare, in this order."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of all randomness: same seed, same numbers.")
    out: PathOption | None = Field(None, description="Run folder; by default runs/DATASET-PEERS-TIME.")

    dealing: Literal["even", "natural", "dirichlet"] = Field(
        "even", description="How samples are dealt to peers; the default depends on the data set."
    )
    alpha: float = Field(0.5, gt=0, description="Of the Dirichlet dealing: small is uneven, large is even.")
    model: str = Field("cnn-small", description="Model to train; the default depends on the data set.")
    width: float = Field(1.0, gt=0, le=16, description="Scale of the model's layer widths.")
    fraction: float = Field(1.0, gt=0, le=1, description="Part of the users (or samples) to train with.")
    initial: Initial = Field(
        "common", description="Whether peers begin with common parameters, or each with its own, as in the paper."
    )
    epochs: int = Field(1, ge=1, description="Local epochs per round.")
    steps: int | None = Field(None, ge=1, description="Local steps per round, instead of epochs.")
    batch_size: int = Field(32, ge=1, description="Samples per mini-batch.")
    optimizer: Literal["rmsprop", "adam", "adamw", "sgd"] = Field("rmsprop", description="Local optimiser.")
    learning_rate: float = Field(0.001, gt=0, le=1e6, description="Step size of the optimiser.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of rmsprop and sgd.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of the optimiser.")
    learning_rate_schedule: RateSchedule = Field("constant", description="The learning rate over the rounds.")
    learning_rate_decay: float = Field(
        0.1, ge=0, le=1, description="What a step multiplies the learning rate by, and where cosine ends."
    )
    learning_rate_period: int | None = Field(
        None, ge=1, description="Rounds from step to step, or until cosine ends (by default with the run)."
    )
    warmup: int = Field(0, ge=0, description="First rounds, in which the learning rate rises.")
    gradient_norm: float | None = Field(None, gt=0, description="Longer gradients are shortened to this norm.")
    proximal: float = Field(0.0, ge=0, description="FedProx: how much it costs to move away from the common model.")
    precision: Precision = Field("float32", description="bfloat16 trains in mixed precision.")
    device: Device = Field("cpu", description="Where peers train: cpu, cuda, cuda:1, mps.")

    common_optimizer: Kind = Field("none", description="What the common model does with an average.")
    common_learning_rate: float | None = Field(
        None, gt=0, le=1e6, description="Of the common optimiser; the default depends on it."
    )
    common_momentum: float | None = Field(None, ge=0, lt=1, description="Of the common optimiser; 0.9 by default.")
    common_adaptivity: float | None = Field(
        None, gt=0, description="Of adam and yogi: small adapts much; 0.001 by default."
    )

    group_size: Literal["auto"] | Annotated[int, Field(ge=2)] = Field(
        "auto", description="Peers per group; auto is 3 unless another size protects peers better."
    )
    design: str = Field("best", description="best, randomized (the paper's Algorithm 2), or a design file.")
    protocol: ProtocolOption = Field(
        "grouped", description="Averaging protocol of the method secured; by default shares where grouped is too weak."
    )
    iterations: int = Field(2, ge=1, description="Iterations of ADMM per average (grouped, paper, classic).")
    finish: Literal["exact", "literal"] = Field(
        "exact", description="Of paper and classic: exact solves for the mean; literal returns the last z."
    )
    rho: float | RhoSchedule = Field(
        DEFAULT_RHO, description="Of paper and classic: ADMM penalty (masks are 1/rho wide), or START,DECAY,PERIOD."
    )
    bits: Literal[16, 32, 64] | None = Field(
        None, description="Of the numbers that travel behind perfect masks; by default as many as parameters have."
    )
    range: float | None = Field(
        None, gt=0, description="Largest absolute value of these; by default 8 for 32 bits, 0.25 for 16."
    )
    beyond: Literal["error", "clip"] = Field("error", description="What to do with values beyond the range.")
    differences: bool = Field(True, description="From round 1 on average what changed, not the parameters.")
    weighted: bool = Field(False, description="Weight each peer by its number of training samples.")
    integers: Integers = Field(
        "own", description="Whole-number buffers: own keeps each peer's, average averages and rounds them."
    )
    local: NamesOption = Field((), description="Parameters that stay at home: names, or patterns like head.*.")
    masks: Literal["seeded", "secret"] = Field(
        "seeded", description="seeded repeats masks with the same seed; secret draws them from the system."
    )
    collusion: int = Field(1, ge=0, description="Colluding peers that the federation must withstand.")
    allow_exposure: bool = Field(False, description="Train even if the settings do not withstand that.")
    privacy: PrivacySettings | None = Field(
        None, description="Differential privacy: unit, noise, clip, delta, epsilon or noise_multiplier, sampling."
    )

    engine: Engine = Field("local", description="Who trains peers: this machine, or a Ray cluster.")
    address: str | None = Field(
        None, description="Of a Ray cluster that is there: auto or HOST:PORT; by default the run starts its own."
    )
    workers: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        "auto", description="Processes that train peers; auto measures what is fastest, of Ray one per core."
    )
    messages_every: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        "auto",
        description="Rounds between two whose messages are passed one by one; in the others codes are added up, with "
        f"the same bits. auto is 1 for up to {ALL_MESSAGES} members, and {MESSAGES_EVERY} for more.",
    )
    checkpoint_every: int = Field(1, ge=1, description="Rounds between checkpoints.")
    keep_updates: int = Field(0, ge=0, description="Rounds between copies of what peers average; 0: none.")
    tensorboard: bool = Field(False, description="Also write TensorBoard events.")
    wandb: bool = Field(False, description="Also log to Weights & Biases.")
    mlflow: bool = Field(False, description="Also log to MLflow.")

    @classmethod
    def resolve(cls, values: Mapping[str, Any], *, where: str = "the settings") -> Self:
        """Check settings and fill in defaults, first those of the data set; `ConfigError` says what is wrong."""
        check_keys(values, cls.model_fields, where)
        if type(peers := values.get("peers")) is int and peers < 2:
            raise ConfigError(
                f"peers = {peers} in {where}: a private average needs at least 3 peers, and local and fedavg, which "
                "hide nothing, at least 2; take more peers"
            )
        rho = values.get("rho")
        if isinstance(rho, Mapping):
            check_keys(rho, RhoSchedule.model_fields, f"rho in {where}")
        check_integers(values.get("integers", "own"))
        if values.get("entry") is not None:
            for key in OF_DATASETS:
                default = cls.model_fields[key].default
                given = values.get(key, default)
                if (tuple(given) if isinstance(given, list) else given) != default:
                    raise ConfigError(
                        f"{key} is set in {where}, but the app of entry has its own; leave one of them away"
                    )
        elif values.get("data"):
            raise ConfigError(f"[data] is set in {where}, but without entry nothing takes it; leave it away")
        dataset = values.get("dataset", cls.model_fields["dataset"].default)
        defaults: Mapping[str, Any] = {}
        if isinstance(dataset, str) and values.get("entry") is None:
            if is_path(dataset) or (dataset not in names() and Path(dataset).is_dir()):
                # whole, because real peers work in other folders
                dataset = str(Path(dataset).expanduser().resolve())
                values = {**values, "dataset": dataset}
            defaults = source(dataset, _columns(values)).defaults
        check_keys(defaults, cls.model_fields, f"the defaults of the data set {dataset!r}")
        if isinstance(wish := values.get("privacy"), Mapping):
            values = {**values, "privacy": PrivacySettings.checked(dict(wish), f"[privacy] in {where}")}
        peers = values.get("peers", cls.model_fields["peers"].default)
        drawn = type(count := values.get("peers_per_round")) is int and count != peers
        if drawn and values.get("entry") is None:
            # what few peers keep of rounds long ago is of little use, and that of thousands takes much memory
            defaults = {**defaults, "between_rounds": "forget"}
        config = cls.checked({**defaults, **values}, where)
        if config.entry is not None and config.between_rounds == "forget":
            raise ConfigError(
                f'between_rounds = "forget" in {where}: an app decides for itself what it keeps; leave it away'
            )
        config.schedule()
        if len(set(config.methods)) < len(config.methods):
            raise ConfigError(f"methods names one twice: {', '.join(config.methods)}")
        check_cluster(config.engine, config.address, config.device, where)
        if config.members > config.peers:
            raise ConfigError(f"peers_per_round = {config.members}, but there are {config.peers} peers; draw fewer")
        if config.learning_rate_schedule == "cosine" and config.learning_rate_period is None:
            # from here on it stays, so that a run that is extended goes on as it was
            config = config.model_copy(update={"learning_rate_period": config.rounds})
        config.options()
        config.common()
        return config

    @property
    def members(self) -> int:
        """How many peers take part in an average."""
        return self.peers_per_round or self.peers

    @property
    def messages_between(self) -> int:
        """Rounds between two whose messages a simulation passes."""
        if self.messages_every == "auto":
            return 1 if self.members <= ALL_MESSAGES else MESSAGES_EVERY
        return self.messages_every

    def common(self, buffers: tuple[slice, ...] = ()) -> CommonOptimizer:
        """Return the optimiser of the common model; ``buffers`` are the parts that it leaves as averaged."""
        kind = self.common_optimizer
        keys = ("learning_rate", "momentum", "adaptivity")
        given = {f"common_{key}": getattr(self, f"common_{key}") for key in keys}
        check_common(kind, given)
        values = {key: value for key in keys if (value := given[f"common_{key}"]) is not None}
        return CommonOptimizer(kind=kind, buffers=buffers, **{"learning_rate": RATES[kind], **values})

    @property
    def subject(self) -> str:
        """What is trained, in a word: the app's name or the data set's."""
        return self.entry or (name_of(Path(self.dataset)) if is_path(self.dataset) else self.dataset)

    @property
    def columns(self) -> Columns:
        """What the columns of a folder mean."""
        return _columns({"label": self.label, "user": self.user, "features": self.features})

    def options(self) -> TrainingOptions:
        """Return how a peer trains; options that contradict each other are a `ConfigError`."""
        return TrainingOptions(**{field.name: getattr(self, field.name) for field in fields(TrainingOptions)})

    def schedule(self) -> Schedule:
        """Return rho as the protocols take it."""
        if isinstance(self.rho, RhoSchedule):
            return Schedule(start=self.rho.start, decay=self.rho.decay, period=self.rho.period)
        return Schedule(start=self.rho)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON and TOML hold them; what is not set is left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_toml(self) -> str:
        """Return the settings as TOML that `read_toml` and `resolve` turn into the same settings.

        Without ``out``, so that a run folder's file can start another run.
        """
        return tomli_w.dumps({key: value for key, value in self.to_dict().items() if key != "out"})
