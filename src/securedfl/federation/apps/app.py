"""An app: a user's own model, data and update; and finding the function that makes it."""

from __future__ import annotations

import importlib
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.errors import AppError, ConfigError, near
from securedfl.federation.apps.failures import Where
from securedfl.federation.settings import check_keys
from securedfl.learning.data.coding import digest, noting

COMMON = {
    "kind": "common_optimizer",
    "learning_rate": "common_learning_rate",
    "momentum": "common_momentum",
    "adaptivity": "common_adaptivity",
}
"""What an app may say about the common model, and the settings that it stands for."""

Make = Callable[[dict[str, Any]], Any]
"""Gets a peer's settings and returns its `App`, or its first fields: (model, data, update[, evaluate])."""


@dataclass(frozen=True, kw_only=True)
class App:
    """What one peer trains: the same in a simulation and between real sites.

    A function ``make(settings)`` returns it. Its settings tell who it is made for: the peer's ``name``, its ``number``
    among ``peers``, the common ``seed``, the options of training, and what stands under ``[data]``.

    Attributes
    ----------
    model
        A PyTorch module, anything else with a ``state_dict``, or a dict of arrays.
    data
        Handed to ``update`` and ``evaluate`` as it is.
    update
        ``update(model, data, round)`` trains in place, and may return the mean loss. If it has ``state_dict`` and
        ``load_state_dict`` (those of an optimiser, for instance), what they hold is kept with every checkpoint.
    evaluate
        ``evaluate(model, data)`` returns how many of how many test samples were right, and the summed loss, as
        ``(correct, loss, count)``.
    evaluate_common
        ``evaluate_common(model)`` does the same on test data that is the same for all peers.
    samples
        How many training samples there are; by default the rows of ``(x, y)`` or a dict of arrays, else ``len(data)``.
    common_optimizer
        What the common model does with an average, the same at all peers: ``"adam"``, say, or a table such as
        ``{"kind": "adam", "learning_rate": 0.03}``. By default what the settings say.
    coding
        What classes and features mean, as any text. Peers compare it, because a class that has another number at
        another site spoils the model. By default a hash of what `read_folder` was told, or found, in ``make``.

    Examples
    --------
    >>> import numpy as np, securedfl, tempfile
    >>> def make(settings):
    ...     points = np.random.default_rng(settings["number"]).normal(5, 1, 100)
    ...     def update(model, data, round):
    ...         model["centre"] += 0.5 * (data.mean() - model["centre"])
    ...     return securedfl.App(model={"centre": np.zeros(1)}, data=points, update=update)
    >>> summary = securedfl.train(make, peers=9, rounds=3, methods="secured", out=tempfile.mkdtemp() + "/run")
    >>> summary.samples.train
    900
    """

    model: Any
    data: Any
    update: Callable[[Any, Any, int], float | None]
    evaluate: Callable[[Any, Any], tuple[int, float, int]] | None = None
    evaluate_common: Callable[[Any], tuple[int, float, int]] | None = None
    samples: int | None = None
    common_optimizer: str | Mapping[str, Any] | None = None
    coding: str = ""

    @classmethod
    def of(cls, made: Any, where: str) -> App:
        """Return what a function made as an app; anything else is an error that names the function."""
        if isinstance(made, tuple) and len(made) in (3, 4):
            model, data, update, *evaluate = made
            made = cls(model=model, data=data, update=update, evaluate=evaluate[0] if evaluate else None)
        if not isinstance(made, App):
            raise ConfigError(
                f"{where} must return a securedfl.App, (model, data, update) or (model, data, update, evaluate), "
                f"not a {type(made).__name__}"
            )
        for name in ("update", "evaluate", "evaluate_common"):
            function = getattr(made, name)
            if not (callable(function) or (function is None and name != "update")):
                raise ConfigError(f"{name} of {where} must be a function, not a {type(function).__name__}")
        if hasattr(made.update, "state_dict") != hasattr(made.update, "load_state_dict"):
            raise ConfigError(f"the update of {where} needs both state_dict and load_state_dict, or neither")
        if made.samples is not None and (not isinstance(made.samples, Integral) or made.samples < 0):
            raise ConfigError(f"samples of {where} must be a whole number, 0 or more, not {made.samples!r}")
        if not isinstance(made.coding, str):
            raise ConfigError(f"coding of {where} must be a text, not a {type(made.coding).__name__}")
        if isinstance(made.common_optimizer, Mapping):
            check_keys(made.common_optimizer, COMMON, f"common_optimizer of {where}")
        return made

    @property
    def common(self) -> dict[str, Any]:
        """The settings that it chooses for the common model; none if it leaves that to the run."""
        given = self.common_optimizer
        table = given if isinstance(given, Mapping) else {} if given is None else {"kind": given}
        return {COMMON[key]: value for key, value in table.items()}

    @property
    def size(self) -> int:
        """The number of training samples, 1 where it is unknown."""
        if self.samples is not None:
            return self.samples
        dataset: Any = getattr(self.data, "dataset", None)
        # the length of a DataLoader is in batches
        if hasattr(self.data, "batch_size") and hasattr(dataset, "__len__"):
            return len(dataset)
        return _length(self.data)


def _length(data: Any) -> int:
    """Return how many samples data has: the rows of arrays that stand together, or its own length; 1 if it has none."""
    # a list is one of samples
    parts = list(data.values()) if isinstance(data, Mapping) else data if isinstance(data, tuple) else ()
    rows: set[int | None] = {int(part.shape[0]) if getattr(part, "shape", ()) else None for part in parts}
    if len(parts) > 1 and len(rows) == 1 and (found := rows.pop()) is not None:
        return found
    return len(data) if hasattr(data, "__len__") else 1


@dataclass(frozen=True)
class EntryPoint:
    """Where apps come from: a function that is imported by name, or one that only this process has.

    Attributes
    ----------
    name
        ``module:function``; of a function without such a name, what it calls itself.
    folder
        Where modules are looked for first.
    function
        What only this process has; None is imported by name.
    """

    name: str
    folder: Path
    function: Make | None = None

    @classmethod
    def of(cls, given: str | Make, folder: Path) -> EntryPoint:
        """Return where an app comes from, given its name or the function itself."""
        if isinstance(given, str):
            return cls(given, folder)
        if isinstance(given, App) or not callable(given):
            raise ConfigError(
                "an app is made by a function of a peer's settings, because every peer has data of its own: "
                "give that function, or its name as module:function"
            )
        module, name = getattr(given, "__module__", ""), getattr(given, "__qualname__", type(given).__name__)
        found = getattr(sys.modules.get(module), name, None)
        if module != "__main__" and found is given:
            return cls(f"{module}:{name}", folder)
        return cls(f"{module}:{name}", folder, given)

    def make(self, settings: Mapping[str, Any], seed: int) -> App:
        """Return a peer's app, made with torch's, numpy's and Python's global generators begun at a seed."""
        function = self.function or find(self.name, self.folder)
        with seeded(seed), noting() as read, self.at(settings).told(re.split("[:.]", self.name)[-1]):
            app = App.of(function(dict(settings)), self.name)
        return replace(app, coding=digest([app.coding] if app.coding else read))

    def at(self, settings: Mapping[str, Any]) -> Where:
        """Return where the app of a peer is, for errors."""
        return Where(self.name, str(settings.get("name", "")), settings)


def find(entry: str, folder: Path) -> Make:
    """Import ``module:function``, from a folder first, then from where the command was started."""
    module_name, _, function = entry.partition(":")
    if not module_name or not function:
        raise ConfigError(f"entry = {entry!r}: must be module:function")
    for place in (str(Path.cwd()), str(folder)):
        if place not in sys.path:
            sys.path.insert(0, place)
    try:
        with Where(entry).told("import"):
            module = importlib.import_module(module_name)
    except AppError as error:
        # a module that is not there is another mistake than one that cannot be imported
        missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        if missing is None or not f"{module_name}.".startswith(f"{missing}."):
            raise
        raise ConfigError(
            f"cannot load the entry point {entry}: there is no module {missing!r} in {folder}, here, or where "
            "Python looks for modules"
        ) from None
    found = getattr(module, function, None)
    if found is None:
        known = [name for name, value in vars(module).items() if callable(value)]
        hint = near(function, known) or "; name one that it has"
        if "<" in function:
            hint = "; a function within another has no name to import it by; hand it over as app="
        raise ConfigError(f"cannot load the entry point {entry}: {module_name} has no function {function!r}{hint}")
    if not callable(found):
        raise ConfigError(f"the entry point {entry} must be a function, not a {type(found).__name__}")
    return found  # type: ignore[no-any-return]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Begin the global generators of Python, numpy, and torch if it is loaded, at a seed; give the states back."""
    torch = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - users' code may draw from it
    if torch is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(states[2])
