"""Settings of a training run: from TOML and the command line, checked, and written back as TOML."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from securedfl.designs.sizes import MOST_PEERS
from securedfl.errors import ConfigError
from securedfl.federation.budget.settings import PrivacySettings
from securedfl.learning.data.datasets import source
from securedfl.parameters import Integers
from securedfl.protocols import DEFAULT_RHO, Protocol, Schedule

FREE = frozenset({"out", "data_dir", "workers", "checkpoint_every", "keep_updates", "tensorboard"})
"""Settings that change no number, so that a resumed run may have others."""


ADDED = frozenset({"integers", "local"})
"""Settings that older run folders do not have; their defaults are not hashed, so that those go on."""

RENAMED = {"partition": "dealing"}
"""Settings that had another name in older run folders."""


def _names(value: Any) -> Any:
    """Read "local, fedavg" as the list that TOML would have."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return tuple(value) if isinstance(value, list) else value


def _path(value: Any) -> Any:
    return Path(value).expanduser() if isinstance(value, str) else value


ProtocolOption = Annotated[
    str | Protocol, PlainSerializer(lambda given: getattr(given, "name", given), return_type=str)
]
"""The name of a protocol, or one of the user's own, which files know by its name."""

PathOption = Annotated[Path, BeforeValidator(_path)]


class Settings(BaseModel):
    """Settings that are checked strictly: unknown keys and values of another type are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )

    @classmethod
    def checked(cls, values: Mapping[str, Any], where: str) -> Self:
        """Return the settings; a `ConfigError` names the key, what is wrong with it, and what was given."""
        check_keys(values, cls.model_fields, where)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(_explain(error, where)) from None


class RhoSchedule(Settings):
    """rho as ``start * decay ** (i // period)`` at iteration i = 0, 1, ..."""

    start: float = Field(gt=0)
    decay: float = Field(default=1.0, gt=0)
    period: int = Field(default=1, ge=1)


class TrainConfig(Settings):
    """Everything that decides a run. Each field is a key of the TOML file and an option of ``securedfl train``.

    Make one with `resolve`, which fills in the defaults of the data set and explains what is wrong.

    Examples
    --------
    >>> import securedfl
    >>> config = securedfl.TrainConfig.resolve({"peers": 15, "protocol": "shares", "collusion": 2})
    >>> config.rounds, config.model
    (20, 'cnn-small')
    """

    dataset: str = Field("digits", description="Data set to train on.")
    data_dir: PathOption | None = Field(None, description="Folder of the data set, where it needs one.")
    peers: int = Field(9, ge=2, le=MOST_PEERS, description="Number of peers.")
    rounds: int = Field(20, ge=1, description="Rounds of federated learning.")
    methods: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(
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
    epochs: int = Field(1, ge=1, description="Local epochs per round.")
    batch_size: int = Field(32, ge=1, description="Samples per mini-batch.")
    optimizer: Literal["rmsprop", "adam", "sgd"] = Field("rmsprop", description="Local optimiser.")
    learning_rate: float = Field(0.001, gt=0, le=1e6, description="Step size of the optimiser.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of rmsprop and sgd.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of the optimiser.")

    group_size: Literal["auto"] | Annotated[int, Field(ge=2)] = Field(
        "auto", description="Peers per group; auto is 3 unless another size protects peers better."
    )
    design: str = Field("best", description="best, randomized (the paper's Algorithm 2), or a design file.")
    protocol: ProtocolOption = Field("grouped", description="Averaging protocol of the method secured.")
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
    local: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(
        (), description="Parameters that stay at home: names, or patterns like head.*."
    )
    masks: Literal["seeded", "secret"] = Field(
        "seeded", description="seeded repeats masks with the same seed; secret draws them from the system."
    )
    collusion: int = Field(1, ge=0, description="Colluding peers that the federation must withstand.")
    allow_exposure: bool = Field(False, description="Train even if the settings do not withstand that.")
    privacy: PrivacySettings | None = Field(
        None, description="Differential privacy: unit, noise, clip, delta, epsilon or noise_multiplier, sampling."
    )

    workers: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        "auto", description="Processes that train peers; auto measures what is fastest."
    )
    checkpoint_every: int = Field(1, ge=1, description="Rounds between checkpoints.")
    keep_updates: int = Field(0, ge=0, description="Rounds between copies of what peers average; 0: none.")
    tensorboard: bool = Field(False, description="Also write TensorBoard events.")

    @classmethod
    def resolve(cls, values: Mapping[str, Any], *, where: str = "the settings") -> Self:
        """Check settings and fill in defaults, first those of the data set; `ConfigError` says what is wrong."""
        check_keys(values, cls.model_fields, where)
        rho = values.get("rho")
        if isinstance(rho, Mapping):
            check_keys(rho, RhoSchedule.model_fields, f"rho in {where}")
        dataset = values.get("dataset", cls.model_fields["dataset"].default)
        defaults = source(dataset).defaults if isinstance(dataset, str) else {}
        check_keys(defaults, cls.model_fields, f"the defaults of the data set {dataset!r}")
        config = cls.checked({**defaults, **values, **privacy_in(values, where)}, where)
        config.schedule()
        if len(set(config.methods)) < len(config.methods):
            raise ConfigError(f"methods names one twice: {', '.join(config.methods)}")
        return config

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

    def changed_from(self, other: TrainConfig) -> list[str]:
        """Name the settings by which another run's numbers may differ, with both values."""
        mine, theirs = self.to_dict(), other.to_dict()
        return [
            f"{key} = {mine.get(key)!r}, not {theirs.get(key)!r}"
            for key in sorted(mine.keys() | theirs.keys())
            if key not in FREE and mine.get(key) != theirs.get(key)
        ]

    def fingerprint(self) -> str:
        """Short hash of all settings that change numbers, under the names they had when runs were first hashed."""
        first_names = {new: old for old, new in RENAMED.items()}
        left_out = FREE | {key for key in ADDED if getattr(self, key) == type(self).model_fields[key].default}
        decisive = {first_names.get(key, key): value for key, value in self.to_dict().items() if key not in left_out}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


def privacy_in(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the table ``privacy`` of settings, checked, if there is one."""
    given = values.get("privacy")
    if not isinstance(given, Mapping):
        return {}
    where = f"[privacy] in {where}"
    check_keys(given, PrivacySettings.model_fields, where)
    try:
        return {"privacy": PrivacySettings.model_validate(dict(given))}
    except ValidationError as error:
        raise ConfigError(_explain(error, where)) from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; a missing or malformed one is a `ConfigError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def check_keys(values: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse a key that is not known, by an error that names the nearest."""
    for key in values:
        if key not in known:
            if RENAMED.get(key, "") in known:
                raise ConfigError(f"{key!r} in {where} is called {RENAMED[key]!r} now; rename it")
            near = difflib.get_close_matches(key.replace("-", "_"), list(known), n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"
            raise ConfigError(f"unknown key {key!r} in {where}{hint}")


_WORDS = {
    "model_type": "a table with start, decay and period",
    "missing": "given",
    "too_short": "at least one name",
    "tuple_type": "a list of names",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "path_type": "a path",
}
"""Findings of pydantic that plain words tell better, after "must be"."""


def _explain(error: ValidationError, where: str) -> str:
    """Turn pydantic's findings into lines that name the key, what is wrong and what was given."""
    lines: dict[str, list[str]] = {}
    given: dict[str, Any] = {}
    for finding in error.errors():
        key = str(finding["loc"][0])
        inner = [str(part) for part in finding["loc"][1:] if part in RhoSchedule.model_fields]
        name = ".".join([key, *inner])
        message = finding["msg"].removeprefix("Input should be ")
        if finding["type"] in _WORDS:
            message = _WORDS[finding["type"]]
        lines.setdefault(name, []).append(message)
        given.setdefault(name, finding["input"])
    texts = []
    for name, messages in lines.items():
        wanted = " or ".join(dict.fromkeys(messages))
        is_given = "" if wanted == _WORDS["missing"] else f" = {given[name]!r}"
        texts.append(f"{name}{is_given} in {where}: must be {wanted}")
    return "; ".join(texts)
