"""A run, as frozen dataclasses; as JSON and back; and changed by ``--set a.b=c``.

Every value is checked against its field's type. An unknown name or a bad value raises ConfigError with the remedy.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from coalface.algorithms import METHODS
from coalface.data.centres import DomainData
from coalface.data.world import Data
from coalface.engines.faults import Faults
from coalface.federation import Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.models import MODELS, networks
from coalface.numerics import Numerics
from coalface.privacy.settings import Privacy

WORLDS = {"faces": "faces", "recordings": "attack detection"}  # what a method is for, in words
KINDS = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}  # types of values, in words


class ConfigError(ValueError):
    """A setting that does not exist or a value that it cannot take."""


@dataclass(frozen=True)
class Central:
    """Central training: the server's on public faces before the federation, and the upper end it is compared with."""

    rounds: int = 10  # passes over the pooled faces; 0 leaves this training out
    scale: float = 16.0
    margin: float = 0.0
    training: Training = field(default_factory=lambda: Training(rate=0.02, batch=64, momentum=0.9))

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise ValueError(f"rounds is at least 0, not {self.rounds}; 0 leaves this training out")


@dataclass(frozen=True)
class Run:
    """Everything that decides what a run computes. The device and the engine do not: they are chosen when it starts."""

    method: Method = field(default_factory=METHODS["fedavg/shared-head"])
    model: str = "feduv_cnn"
    embedding: int = 512
    weights: str = ""  # a checkpoint to start from instead of pre-training
    seed: int = 0
    data: Data = field(default_factory=Data)
    pretrain: Central = field(default_factory=Central)
    rounds: Rounds = field(default_factory=Rounds)
    training: Training = field(default_factory=Training)
    central: Central = field(default_factory=Central)
    faults: Faults = field(default_factory=Faults)
    numerics: Numerics = field(default_factory=Numerics)  # of a GPU
    privacy: Privacy = field(default_factory=Privacy)

    def __post_init__(self) -> None:
        if self.method.world != "faces":
            raise ValueError(f"{method_name(self.method)} detects attacks: it cannot recognise faces")
        _check_network(self.model, "faces")
        if self.embedding < 1:
            raise ValueError(f"embedding is how many numbers a face becomes, at least 1, not {self.embedding}")

    def sha256(self) -> str:
        """A hash of every setting."""
        return _sha256(self)


@dataclass(frozen=True)
class DetectionRun:
    """A run of attack detection: data centres train a detector, and it is tested on the users' domain."""

    method: Method = field(default_factory=METHODS["fedpad"])
    model: str = ""  # empty: the network of the method's paper
    width: int = 64  # channels of its first layer
    weights: str = ""  # a checkpoint to start from
    numerics: Numerics = field(default_factory=Numerics)  # of a GPU
    seed: int = 0
    data: DomainData = field(default_factory=DomainData)
    rounds: Rounds = field(default_factory=Rounds)
    training: Training = field(default_factory=lambda: Training(rate=1e-3, batch=32, optimiser="adam", balanced=True))
    ends: tuple[str, ...] = ("single", "all")  # methods to run beside it, by the same rules
    at_home: bool = False  # whoever uses a detector takes half of its statistics from live frames of their own
    faults: Faults = field(default_factory=Faults)
    privacy: Privacy = field(default_factory=Privacy)

    def __post_init__(self) -> None:
        for name in (method_name(self.method), *self.ends):
            if method_named(name).world != "recordings":
                raise ValueError(f"{name} is for faces: it cannot detect attacks")
        if self.model:
            _check_network(self.model, "recordings")
        if self.width < 1:
            raise ValueError(f"width is the channels of the first layer, at least 1, not {self.width}")

    def sha256(self) -> str:
        """A hash of every setting."""
        return _sha256(self)


AnyRun = TypeVar("AnyRun", bound=Run | DetectionRun)


def run_from_json(values: Any) -> Run | DetectionRun:
    """The run of a config.json: what its method is for says which kind it is."""
    method = values.get("method") if isinstance(values, dict) else None
    name = method.get("name") if isinstance(method, dict) else None
    kind = DetectionRun if name in METHODS and METHODS[name].world == "recordings" else Run
    return cast(Run | DetectionRun, from_json(kind, values))


def _sha256(run: Run | DetectionRun) -> str:
    return hashlib.sha256(json.dumps(to_json(run), sort_keys=True).encode()).hexdigest()


def _check_network(name: str, world: str) -> None:
    known = networks(world)
    if name not in known:
        what = f"{name!r} is not for {WORLDS[world]}" if name in MODELS else f"there is no model {name!r}"
        raise ValueError(f"model: {what}; networks for {WORLDS[world]} are {', '.join(known)}")


def method_name(method: Any) -> str:
    """The method's name in the table."""
    return next(name for name, kind in METHODS.items() if kind is type(method))


def method_named(name: str) -> type[Method]:
    """The method of that name, or a ConfigError that lists the names."""
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(METHODS)}"
        raise ConfigError(f"no method {name!r}; {hint}")
    return METHODS[name]


def to_json(config: Any) -> Any:
    """Plain JSON values; a method is its settings and its name."""
    if dataclasses.is_dataclass(config):
        fields = {f.name: to_json(getattr(config, f.name)) for f in dataclasses.fields(config)}
        kind: Any = type(config)
        return {"name": method_name(config), **fields} if kind in METHODS.values() else fields
    if isinstance(config, tuple):
        return [to_json(value) for value in config]
    return config


def from_json(kind: Any, value: Any, at: str = "") -> Any:
    """The dataclass of type ``kind`` with these values; what is absent takes its default."""
    if kind is Method:
        if not isinstance(value, dict) or "name" not in value:
            raise ConfigError(f"{at} must be an object with a name, not {value!r}")
        return from_json(method_named(value["name"]), {k: v for k, v in value.items() if k != "name"}, at)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ConfigError(f"{at or 'the configuration'} must be an object, not {value!r}")
        hints = get_type_hints(kind)
        names = [f.name for f in dataclasses.fields(kind)]
        for name in value:
            _must_exist(name, names, at)
        fields = {name: from_json(hints[name], item, f"{at}.{name}".lstrip(".")) for name, item in value.items()}
        try:
            return kind(**fields)  # type: ignore[operator]  # is_dataclass also admits instances
        except ValueError as error:
            raise ConfigError(f"{at}: {error}".lstrip(": ")) from error
    return _plain(kind, value, at)


def override(run: AnyRun, settings: Iterable[str]) -> AnyRun:
    """The run with ``a.b=c`` settings applied in order."""
    config = to_json(run)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set takes name=value, not {setting!r}")
        *folders, name = path.split(".")
        place = config
        for depth, folder in enumerate(folders):
            _must_exist(folder, place, ".".join(folders[:depth]))
            place = place[folder]
            if not isinstance(place, dict):
                raise ConfigError(f"{'.'.join(folders[: depth + 1])} is a single value: it has no {name!r}")
        _must_exist(name, place, ".".join(folders))
        if isinstance(place[name], dict):
            raise ConfigError(f"{path} is a group: set one of {', '.join(f'{path}.{key}' for key in place[name])}")
        if path == "method.name":
            config["method"] = to_json(method_named(text)())  # another method has other settings
        else:
            place[name] = _parsed(text, like=place[name])
    return cast(AnyRun, from_json(type(run), config))


def _must_exist(name: str, names: Iterable[str], at: str) -> None:
    names = list(names)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {_path(at, near[0])}?" if near else f"there are: {', '.join(names)}"
        raise ConfigError(f"no setting {_path(at, name)!r}; {hint}")


def _path(at: str, name: str) -> str:
    return f"{at}.{name}".lstrip(".")


def _parsed(text: str, like: Any) -> Any:
    if isinstance(like, str):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _plain(kind: Any, value: Any, at: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{at} must be one of {', '.join(map(str, arguments))}, not {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{at} must be a list, not {value!r}")
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(kinds) != len(value):
            raise ConfigError(f"{at} must have {len(kinds)} values, not {len(value)}")
        return tuple(_plain(k, v, f"{at}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):  # JSON and TOML have them; every bound that is compared with NaN is none
            raise ConfigError(f"{at} must be a finite number, not {value}")
        return float(value)
    if type(value) is kind:
        return value
    raise ConfigError(f"{at} must be {KINDS.get(kind, kind.__name__)}, not {value!r}")
