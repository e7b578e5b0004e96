from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from coalface import tree


@dataclass(frozen=True)
class Inner:
    weights: dict[str, Tensor]


@dataclass(frozen=True)
class Outer:
    inner: Inner
    bias: Tensor
    count: int
    maybe: Tensor | None = None


def outer() -> Outer:
    return Outer(Inner({"a.weight": torch.tensor([1.0, 2.0]), "b": torch.tensor(3.0)}), torch.tensor([4.0]), 5)


def test_leaves_are_named_by_their_path() -> None:
    assert list(tree.leaves(outer())) == ["inner/weights/a.weight", "inner/weights/b", "bias", "count"]


def test_rebuild_is_the_inverse_of_leaves() -> None:
    again = tree.rebuild(Outer, tree.leaves(outer()))
    assert again.count == 5 and again.maybe is None
    assert tree.sha256(again) == tree.sha256(outer())


def test_rebuild_names_what_is_missing() -> None:
    flat = tree.leaves(outer())
    del flat["bias"]
    with pytest.raises(KeyError, match="bias"):
        tree.rebuild(Outer, flat)


def test_transform_meets_trees_leaf_by_leaf() -> None:
    doubled = tree.transform(lambda a, b: a + b, outer(), outer())
    assert doubled.inner.weights["a.weight"].tolist() == [2.0, 4.0]
    assert doubled.count == 5


def test_the_hash_sees_values_names_and_dtypes() -> None:
    base = {"a": torch.tensor([1.0])}
    others = [{"a": torch.tensor([1.5])}, {"b": torch.tensor([1.0])}, {"a": torch.tensor([1.0], dtype=torch.float64)}]
    assert len({tree.sha256(t) for t in [base, *others]}) == 4


def test_a_slash_in_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'a/b'"):
        tree.leaves({"a/b": torch.zeros(1)})
