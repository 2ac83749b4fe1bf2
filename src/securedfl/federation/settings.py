"""Settings that are checked strictly, and the TOML files that they come from; errors name the key and what is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from securedfl.errors import ConfigError, near

RENAMED = {"partition": "dealing"}
"""Settings that had another name in older run folders."""


def read_names(value: Any) -> Any:
    """Read "local, fedavg" as the list that TOML would have."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return tuple(value) if isinstance(value, list) else value


def _pairs(value: Any) -> Any:
    """Turn a table into pairs, which can be hashed as the rest of the settings can."""
    if not isinstance(value, Mapping):
        return value
    return tuple((key, tuple(item) if isinstance(item, list) else item) for key, item in value.items())


def _path(value: Any) -> Any:
    return Path(value).expanduser() if isinstance(value, str) else value


Value = str | int | float | bool
TableOption = Annotated[
    tuple[tuple[str, Value | tuple[Value, ...]], ...], BeforeValidator(_pairs), PlainSerializer(dict, return_type=dict)
]
"""A table of texts, numbers, true, false, and lists of them."""

PathOption = Annotated[Path, BeforeValidator(_path)]


NamesOption = Annotated[tuple[str, ...], BeforeValidator(read_names)]
"""A list of names, or a text with commas between them."""


class StrictSettings(BaseModel):
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


class RhoSchedule(StrictSettings):
    """rho as ``start * decay ** (i // period)`` at iteration i = 0, 1, ..."""

    start: float = Field(gt=0)
    decay: float = Field(default=1.0, gt=0)
    period: int = Field(default=1, ge=1)


class PrivacySettings(StrictSettings):
    """The table ``[privacy]``: what is promised about each record or site; see docs/guides/differential-privacy.md."""

    unit: Literal["record", "site"] = Field(description="What is protected: each record, or a site as a whole.")
    noise: Literal["distributed", "local", "central"] = Field(
        "distributed",
        description="Who adds it: all sites together, each site enough for itself, or (simulated only) a server.",
    )
    clip: float = Field(gt=0, description="Largest norm of one record's gradient, or of one site's difference.")
    delta: float = Field(gt=0, lt=1, description="Probability that the promise fails; below 1/records.")
    epsilon: float | None = Field(None, gt=0, description="The budget; without noise_multiplier it gives the noise.")
    noise_multiplier: float | None = Field(
        None, gt=0, description="Standard deviation of honest noise in the total, over clip; by default from epsilon."
    )
    sampling: float | None = Field(
        None, gt=0, le=1, description="Of unit record: probability of each record to be in a batch."
    )
    records: int | None = Field(
        None, ge=1, description="Of all sites together, as agreed; real peers need it, a simulation counts."
    )
    over: Literal["refuse", "stop"] = Field(
        "refuse", description="More rounds than the budget allows: refuse to start, or stop when it is spent."
    )


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
            hint = near(key.replace("-", "_"), known, cutoff=0.5) or f"; known: {', '.join(sorted(known))}"
            raise ConfigError(f"unknown key {key!r} in {where}{hint}")


def check_cluster(engine: str, address: str | None, device: str, where: str) -> None:
    """Refuse an address that no Ray cluster can have, or that nobody would use, and a GPU by its number."""
    if engine == "ray" and device.startswith("cuda:"):
        raise ConfigError(
            f'device = {device!r} in {where}: Ray gives every worker a GPU of its own; set device to "cuda"'
        )
    if address is None:
        return
    if engine != "ray":
        raise ConfigError(f'address = {address!r} in {where} is that of a Ray cluster; set engine to "ray", too')
    port = address.rpartition(":")[2]
    if not re.fullmatch(r"auto|[^\s/]+:\d{1,5}", address) or (port != "auto" and not 0 < int(port) < 65536):
        raise ConfigError(f"address = {address!r} in {where}: must be auto, or HOST:PORT such as 10.0.0.1:6379")


_WORDS = {
    "model_type": "a table with start, decay and period",
    "missing": "given",
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

_PATTERNS = {
    "device": "cpu, mps, cuda, or cuda:N for one of several",
    "fingerprint": "64 digits and letters from a to f, as `securedfl certs show` prints them",
    "name": "small letters, digits and dashes only",
}
"""What the texts of these keys look like."""

_SECRET = frozenset({"proxy"})
"""Keys whose values may hold a password, and are never shown."""


def _explain(error: ValidationError, where: str) -> str:
    """Turn pydantic's findings into lines that name the key, what is wrong and what was given."""
    lines: dict[tuple[str, str], list[str]] = {}
    given: dict[tuple[str, str], Any] = {}
    for finding in error.errors():
        place = _place(finding["loc"], where)
        message = finding["msg"].removeprefix("Input should be ")
        if finding["type"] in _WORDS:
            message = _WORDS[finding["type"]]
        elif finding["type"] == "too_short":
            least = finding["ctx"]["min_length"]
            message = "at least one name" if least == 1 else f"a list of {least} or more"
        elif finding["type"] == "too_long":
            message = f"a list of {finding['ctx']['max_length']} at most"
        elif finding["type"] == "string_pattern_mismatch":
            message = _PATTERNS.get(place[0], f"a text that fits {finding['ctx']['pattern']}")
        lines.setdefault(place, []).append(message)
        given.setdefault(place, finding["input"])
    texts = []
    for place, messages in lines.items():
        wanted = " or ".join(dict.fromkeys(messages))
        is_given = "" if wanted == _WORDS["missing"] or place[0] in _SECRET else f" = {given[place]!r:.200}"
        texts.append(f"{place[0]}{is_given} in {place[1]}: must be {wanted}")
    return "; ".join(texts)


def _place(found: tuple[int | str, ...], where: str) -> tuple[str, str]:
    """Return the key that a finding of pydantic is about, and where it stands, as people write it in TOML."""
    match found:
        case (str(table), int(number), str(key)) if table in ("peers", "relays"):
            return key, f"[[{table}]] number {number + 1} in {where}"
        case ("deadlines", str(key), *_):
            return key, f"[deadlines] in {where}"
    inner = [str(part) for part in found[1:] if part in RhoSchedule.model_fields]
    return ".".join([str(found[0]), *inner]), where
