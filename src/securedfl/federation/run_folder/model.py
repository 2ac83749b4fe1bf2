"""model.safetensors: the trained model by the names of its parameters, and `securedfl.load`, which gives it back.

The file of the run's main method is called so; those of others are model-METHOD.safetensors. It holds what all peers
have in common. Parts that stay at home and differ from peer to peer are personal: `load` adds those of one peer.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from securedfl.arrays import is_tensor
from securedfl.containers import Container
from securedfl.errors import ConfigError, RunFolderError, needing, unknown, whole_number
from securedfl.federation.run_folder import checkpoint as checkpoints
from securedfl.federation.run_folder.files import CONFIG, FEDERATION, RESUME, is_trial, read_config
from securedfl.learning.training.task import HOME, Recipe
from securedfl.parameters import Array, Named
from securedfl.states import TEXT, from_arrays
from securedfl.storage import damaged, path_of, replacing

if TYPE_CHECKING:
    import torch

MODEL = "model.safetensors"
LARGEST = 2**30
"""Numbers of a model that is built because a file says so."""

MEND = "restore it from a copy, or repeat the run"


@dataclass(frozen=True, kw_only=True)
class About:
    """What is said about a model in its file.

    Attributes
    ----------
    method, round
        What made it, and when.
    model, shape, classes, width
        How to build it, if it is one that we know by name.
    personal
        Parameters that differ from peer to peer, and are not in the file.
    """

    method: str
    round: int = 0
    model: str | None = None
    shape: tuple[int, ...] = ()
    classes: int = 0
    width: float = 1.0
    personal: tuple[str, ...] = ()

    @classmethod
    def of(cls, *, method: str, round: int, recipe: Recipe | None, personal: tuple[str, ...] = ()) -> Self:
        """Say it of a model with that recipe; None if only its maker can build it."""
        return cls(method=method, round=round, personal=personal, **({} if recipe is None else asdict(recipe)))


def model_file(folder: Path, method: str, main: str) -> Path:
    """Return where the model of a method is."""
    return folder / (MODEL if method == main else f"model-{method}.safetensors")


def save_model(path: Path, model: Mapping[str, Any], about: About) -> None:
    """Write a model, given as tensors or arrays by name; what is personal is left out."""
    kept = {name: value for name, value in model.items() if name not in about.personal}
    metadata = {"format": "pt", "securedfl": json.dumps(asdict(about))}
    with replacing(path, RESUME) as temporary, needing("model.safetensors"):
        if any(is_tensor(value) for value in kept.values()):
            import torch
            from safetensors.torch import save_file

            tensors = {name: torch.as_tensor(value).detach().cpu().clone() for name, value in kept.items()}
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, metadata)
        else:
            from safetensors.numpy import save_file as save_arrays

            save_arrays({name: np.array(value, order="C") for name, value in kept.items()}, temporary, metadata)
        _order_metadata(temporary)


def _order_metadata(path: Path) -> None:
    """Put what a file says about its model in order: the library has any, and sites compare their files by a hash."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        ordered = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode().ljust(size)
        if len(ordered) == size:
            file.seek(8)
            file.write(ordered)


def personal_parts(homes: Sequence[Mapping[str, Array]]) -> tuple[str, ...]:
    """Name what stays at home and differs from peer to peer; counters, such as BatchNorm has, do not count."""
    first, *others = homes
    return tuple(
        name
        for name, value in first.items()
        if value.dtype.kind != "i" and not all(name in other and np.array_equal(value, other[name]) for other in others)
    )


def common_parts(models: Sequence[Mapping[str, Any]]) -> tuple[Named, tuple[str, ...]]:
    """Return what whole models of several peers have in common, and the names of what is personal."""
    personal = personal_parts(models)
    return {name: value for name, value in models[0].items() if name not in personal}, personal


def load(
    run: str | Path, method: str | None = None, *, peer: int | None = None, model: Any = None
) -> torch.nn.Module | dict[str, torch.Tensor] | Any:
    """Return the trained model of a run, ready for use.

    Parameters
    ----------
    run
        A run folder, or the folder of a real peer.
    method
        Whose model, by default that of the run's main method.
    peer
        Whose model, where parts are personal, or peers do not average (Local-Only).
    model
        A model of your own to fill. Needed for entry points; without it, their parameters are returned by name. Without
        ``peer``, personal parts of it stay as they are.

    Returns
    -------
    torch.nn.Module or dict
        A model that we know by name is built, filled and in evaluation mode; yours is filled and returned.

    Raises
    ------
    RunFolderError
        There is no such model, or its file is damaged.
    ConfigError
        Parts of the model are personal: say whose.

    Examples
    --------
    >>> import securedfl, tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> summary = securedfl.train(model="linear", rounds=1, methods="secured", out=folder)
    >>> type(securedfl.load(folder)).__name__
    'Sequential'
    """
    folder = path_of(run, "the run folder")
    if peer is not None and is_trial(folder):
        return load(folder / FEDERATION / f"peer-{peer}", model=model)
    path = _find(folder, method)
    if peer is None and not path.exists():
        raise ConfigError(f"the peers of {method} have no model in common; say whose you want, as in load(run, peer=0)")
    if peer is not None:
        tensors, about = _of_peer(folder, path, method, peer, model)
    else:
        tensors, about = read_model(path)
    if model is None:
        if about.personal and peer is None:
            raise ConfigError(
                f"{', '.join(about.personal)} of the model in {folder} differ from peer to peer; say whose model you "
                "want, as in load(run, peer=0), or fill one of your own, as in load(run, model=mine)"
            )
        if about.model is None:
            return tensors
        model = _built(about, path, tensors)
    _fill(model, tensors)
    return model.eval() if hasattr(model, "eval") else model


def read_model(path: Path) -> tuple[dict[str, torch.Tensor], About]:
    """Read a model as tensors by name, and what is said about it; a damaged file is a `RunFolderError`."""
    with needing("securedfl.load"):
        from safetensors import SafetensorError, safe_open
    try:
        with safe_open(path, framework="pt") as file:
            about = msgspec.convert(json.loads((file.metadata() or {})["securedfl"]), About)
            if Path(about.method).name != about.method:
                raise ValueError(f"the method {about.method!r:.80} is no name")
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118 - not a dict
    except (OSError, SafetensorError, ValueError, KeyError, RecursionError) as error:
        raise damaged(path, error, MEND) from None


def _find(folder: Path, method: str | None) -> Path:
    """Return the file of a method's model; of one without a common model, where it would be."""
    if not folder.is_dir():
        raise RunFolderError(f"there is no run folder {folder}; give the folder that `securedfl train --out` wrote")
    own = None if method is None else folder / f"model-{method}.safetensors"
    path = own if own is not None and own.exists() else folder / MODEL
    if path.exists() and (method is None or path == own or read_model(path)[1].method == method):
        return path
    if method is not None and (folder / "checkpoints" / f"{method}.safetensors").exists():
        return folder / f"model-{method}.safetensors"
    known = {path.stem for path in folder.glob("checkpoints/*.safetensors")}
    if method is not None and known and method not in known:
        raise unknown(f"method of the run in {folder}", method, known)
    raise RunFolderError(
        f"{folder} has no model{f' of {method}' if method else ''}: a run leaves it when a method has its last round. "
        "Continue the run with `securedfl train --resume`, or name another method"
    )


def _of_peer(
    folder: Path, path: Path, method: str | None, peer: int, model: Any
) -> tuple[dict[str, torch.Tensor], About]:
    """Return one peer's whole model, from the checkpoint of a simulation."""
    if not (folder / CONFIG).exists():
        raise ConfigError(f"{folder} is of one peer; leave peer away")
    from securedfl.learning.models.flat import FlatModel

    config = read_config(folder)
    known = sorted(folder.glob("model*.safetensors"))
    about = read_model(path if path.exists() or not known else known[0])[1] if known else None
    point = checkpoints.load(folder / "checkpoints" / f"{method or (about.method if about else '')}.safetensors")
    if whole_number(peer, "peer", least=0) >= len(point.states):
        raise ConfigError(f"peer = {peer}: the run has peers 0 to {len(point.states) - 1}")
    if model is None and (about is None or about.model is None):
        raise ConfigError("give a model of your own to fill, as in load(run, peer=0, model=mine)")
    row = point.parameters[min(peer, len(point.parameters) - 1)]
    made = _built(about, path) if model is None and about is not None else copy.deepcopy(model)
    state = point.states[peer]
    if TEXT in state:
        # of an app, whose parameters stand in another order
        container = Container.of(made)
        container.put(container.schema(integers=config.integers, local=config.local), row)
        container.replace(from_arrays(state)["home"])
    else:
        flat = FlatModel(made, integers=config.integers, local=config.local)
        flat.read(row, {n.removeprefix(HOME): v for n, v in state.items() if n.startswith(HOME)})
    found = {name: value.detach().clone() for name, value in made.state_dict().items()}
    return found, about or About(method=point.method, round=point.round)


def _built(about: About, path: Path, tensors: Mapping[str, Any] | None = None) -> torch.nn.Module:
    """Build the model that a file tells of; first without memory, because what is said there may be anything."""
    import torch

    from securedfl.learning.models.registry import MODELS, build, builder

    assert about.model is not None  # noqa: S101 - the callers know
    # one that is not installed is another error
    builder(about.model)
    made = partial(build, about.model, about.shape, about.classes, about.width)
    try:
        if about.model in MODELS:
            with torch.device("meta"):
                shapes = {name: value.shape for name, value in made().state_dict().items()}
            size = sum(shape.numel() for shape in shapes.values())
            if size > LARGEST:
                raise ValueError(f"it would have {size:,} numbers")
            if tensors is not None and shapes != {name: value.shape for name, value in tensors.items()}:
                raise ValueError("its parameters are others than those in the file")
        return made()
    except Exception as error:
        told = f"{about.model} of shape {about.shape}, {about.classes} classes, width {about.width:g}"
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise damaged(path, f"it tells of the model {told}: {why}", MEND) from None


def _fill(model: Any, tensors: Mapping[str, Any]) -> None:
    """Put tensors into a module or a dict of arrays; names that it does not have are an error."""
    tree = model.state_dict() if hasattr(model, "state_dict") else model
    strange = [name for name in tensors if name not in tree]
    if strange:
        raise ConfigError(f"the model has no {strange[0]!r}, which the run trained; give the model of the run")
    wrong = next((name for name, value in tensors.items() if tuple(tree[name].shape) != tuple(value.shape)), None)
    if wrong is not None:
        shapes = f"{tuple(tensors[wrong].shape)} in the run and {tuple(tree[wrong].shape)} in the model"
        raise ConfigError(f"{wrong!r} is {shapes}; give the model of the run")
    if hasattr(model, "load_state_dict"):
        model.load_state_dict({**tree, **tensors})
    else:
        for name, value in tensors.items():
            tree[name][...] = value
