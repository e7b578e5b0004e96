"""Dataclasses of tensors, seen as flat named tensors, and back.

A tree is a tensor, an int or float, a ``dict[str, tree]``, or a dataclass of trees. Paths are joined with "/":
``backbone/parameters/conv1.weight``. Types rebuild a tree from its leaves, so no file needs to say what it holds,
and nothing that a peer or a file says decides which class is made.
"""

from __future__ import annotations

import dataclasses
import hashlib
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

Tree = Any  # a recursive type that mypy cannot express for dataclasses


def leaves(tree: Tree, prefix: str = "") -> dict[str, Tensor]:
    """Flat names and tensors, in declaration order; numbers become 0-d tensors, None fields are absent."""
    flat: dict[str, Tensor] = {}
    _collect(tree, prefix, flat)
    return flat


def _collect(tree: Tree, path: str, flat: dict[str, Tensor]) -> None:
    if isinstance(tree, Tensor):
        flat[path] = tree
    elif isinstance(tree, int | float):
        flat[path] = torch.tensor(tree, dtype=torch.int64 if isinstance(tree, int) else torch.float64)
    elif tree is not None:
        below = f"{path}/" if path else ""
        for name, child in _children(tree).items():
            if "/" in name:
                raise ValueError(f"'/' separates levels and cannot be part of the name {name!r}")
            _collect(child, below + name, flat)


def rebuild(kind: Any, flat: Mapping[str, Tensor], prefix: str = "") -> Tree:
    """The tree of type ``kind`` that has these leaves; KeyError names the first one that is missing."""
    kind, optional = _strip(kind)
    below = f"{prefix}/" if prefix else ""
    if optional and not any(name == prefix or name.startswith(below) for name in flat):
        return None
    if kind is Tensor:
        return flat[prefix]
    if kind in (int, float):
        return kind(flat[prefix].item())
    if get_origin(kind) is dict:
        names = [name[len(below) :].split("/")[0] for name in flat if name.startswith(below)]
        return {name: rebuild(get_args(kind)[1], flat, below + name) for name in dict.fromkeys(names)}
    if dataclasses.is_dataclass(kind):
        made: Any = kind  # is_dataclass also admits instances
        return made(**{name: rebuild(of, flat, below + name) for name, of in field_types(made).items()})
    raise TypeError(f"{prefix or 'the root'}: {kind!r} is neither tensor, number, dict nor dataclass")


def refill(like: Tree, flat: Mapping[str, Tensor], prefix: str = "") -> Tree:
    """A tree of the same structure as ``like``, with these leaves."""
    if like is None or isinstance(like, int | float):
        return like
    if isinstance(like, Tensor):
        return flat[prefix]
    below = f"{prefix}/" if prefix else ""
    children = {name: refill(child, flat, below + name) for name, child in _children(like).items()}
    return children if isinstance(like, dict) else dataclasses.replace(like, **children)


def transform(function: Callable[..., Tensor], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to every tensor of a tree (and to the tensors at the same places of the other trees)."""
    if isinstance(tree, Tensor):
        return function(tree, *others)
    if tree is None or isinstance(tree, int | float):
        return tree
    at = {
        name: transform(function, child, *(_children(other)[name] for other in others))
        for name, child in _children(tree).items()
    }
    return at if isinstance(tree, dict) else dataclasses.replace(tree, **at)


def sha256(tree: Tree) -> str:
    """A hash of every leaf's name, dtype, shape and bytes."""
    digest = hashlib.sha256()
    for name, leaf in sorted(leaves(tree).items()):
        digest.update(f"{name} {leaf.dtype} {list(leaf.shape)}\n".encode())
        digest.update(leaf.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _children(tree: Tree) -> dict[str, Tree]:
    if isinstance(tree, dict):
        return tree
    return {name: getattr(tree, name) for name in field_names(tree)}


def field_names(holder: object) -> tuple[str, ...]:
    """Of a dataclass's instance; looked up once for each class, since a round asks many times."""
    kind: Any = type(holder)  # mypy takes the hash of an instance for that of the class
    return _field_names(kind)


@cache
def field_types(kind: Any) -> dict[str, Any]:
    """Of a dataclass: each field's type, as it is annotated."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is neither tensor, number, dict nor dataclass")
    return tuple(field.name for field in dataclasses.fields(kind))


@cache
def _strip(kind: Any) -> tuple[Any, bool]:
    """A type without its Annotated wrapper, and whether None is allowed."""
    if hasattr(kind, "__metadata__"):
        return _strip(kind.__origin__)
    arguments = get_args(kind)
    if get_origin(kind) in (types.UnionType,) and type(None) in arguments:
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _strip(inner)[0], True
    return kind, False
