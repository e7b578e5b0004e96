"""coalface eval, ijb and pairs: a model on photographs that it has not seen, and lists of pairs of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from coalface import seeding
from coalface.config import ConfigError, DetectionRun
from coalface.data import pairs as pair_lists
from coalface.data.faces import list_photos, read_folder, read_images
from coalface.data.faceset import FaceSet
from coalface.data.pair_bin import read_bin
from coalface.evaluation import embed
from coalface.metrics.rates import allowed_false_matches
from coalface.models import networks
from coalface.models.checkpoints import load_weights
from coalface.models.net import Net, Weights
from coalface.protocols.verification import all_pairs, lfw_folds, pair_scores, synthetic_pairs
from coalface.report.progress import Progress
from coalface.verbs import ijb
from coalface.verbs.given import config_of, described, device_of, folder_of, read_config


def evaluate(options: argparse.Namespace, command: str) -> None:
    """A model on photographs that it has not seen."""
    net, weights = _model(options)
    weights = weights.map(lambda leaf: leaf.to(device_of(options.device)))
    head = _head(options)
    assert net.size is not None  # every recognition model has one
    size = net.size[0]
    with Progress(quiet=options.quiet) as progress:
        if options.pairs is None:
            faces = described(lambda: _photographs(options, size, progress))
            embeddings = _embedded(net, weights, faces.images, head, progress)
            identities = torch.repeat_interleave(torch.arange(len(faces)), faces.counts())
            result: Any = described(lambda: all_pairs(embeddings, identities, options.fmr))
        else:
            listed = described(lambda: _pair_list(options))
            images = described(lambda: _listed_images(listed, size, progress))
            embeddings = _embedded(net, weights, images, head, progress)
            scores = pair_scores(embeddings, listed.pairs)
            result = described(lambda: lfw_folds(scores, listed.same, listed.fold))
    print(result.to_json() if options.json else str(result))


def templates(options: argparse.Namespace, command: str) -> None:
    """A model on templates of several images each, by the list files of IJB."""
    net, weights = _model(options)
    weights = weights.map(lambda leaf: leaf.to(device_of(options.device)))
    described(lambda: ijb.ijb(options, net, weights, _head(options)))


def pairs(options: argparse.Namespace, command: str) -> None:
    """A balanced, LFW-style pair list for a folder of photographs."""
    root = folder_of(options.data)
    if options.out.is_dir():
        raise ConfigError(f"--out is the file to write, and {options.out} is a folder: try {options.out / 'pairs.csv'}")
    photos: dict[str, list[Path]] = described(lambda: list_photos(root))  # as `eval` finds them
    if not photos:
        raise ConfigError(f"{root} holds no photographs: it needs one sub-folder per identity")
    files = [file for several in photos.values() for file in several]
    each = torch.tensor([len(several) for several in photos.values()])
    identities = torch.repeat_interleave(torch.arange(len(photos)), each)
    generator = seeding.generator(options.seed, "pairs")
    chosen, same, fold = described(lambda: synthetic_pairs(identities, options.count, 10, generator))
    listed = pair_lists.PairList(tuple(files), chosen[:, 0], chosen[:, 1], same, fold)
    pair_lists.write_csv(listed, options.out, root)
    print(f"{len(listed)} pairs of {len(photos)} identities in 10 folds: {options.out}")


def _model(options: argparse.Namespace) -> tuple[Net, Any]:
    folder = options.model_or_run
    if not folder.exists():
        raise ConfigError(f"there is no {folder}: give a run's folder, or a weights file with --model")
    if folder.is_dir():
        run_ = read_config(config_of(folder))
        if isinstance(run_, DetectionRun):
            raise ConfigError(f"{folder} detects attacks: `eval` compares faces; see its result.json")
        net = Net(run_.model, embedding=run_.embedding, size=run_.data.size)
        file = folder / "model.safetensors"
        if not file.exists():
            raise ConfigError(f"{folder} is not finished: coalface resume {folder}")
    else:
        if options.model is None:
            raise ConfigError("weights alone do not say which network they are for: add --model NAME")
        if options.model not in networks("faces"):
            raise ConfigError(f"--model {options.model}: networks for faces are {', '.join(networks('faces'))}")
        net = described(lambda: Net(options.model, size=options.size))
        file = folder
    return net, described(lambda: load_weights(file, net))


def _head(options: argparse.Namespace) -> Tensor | None:
    """Of a run whose method compares faces by more than its embeddings: the linear map that comes after them."""
    file = options.model_or_run / "head.safetensors"
    return safetensors.torch.load_file(file, str(device_of(options.device)))["head"] if file.exists() else None


def _pair_list(options: argparse.Namespace) -> pair_lists.PairList:
    if options.pairs.suffix == ".bin":
        return read_bin(options.pairs)
    if options.pairs.suffix == ".csv":
        return pair_lists.read_csv(options.pairs, options.data)
    return pair_lists.read_lfw(options.pairs, folder_of(options.data))


def _photographs(options: argparse.Namespace, size: int, progress: Progress) -> FaceSet:
    """Everybody in a folder of whom there are two photographs, which make a pair."""
    folder = folder_of(options.data)
    each = [len(files) for files in list_photos(folder).values() if len(files) > 1]
    if len(each) > 1:
        for target in options.fmr:  # refused now, and not after all of them were decoded
            allowed_false_matches(target, (sum(each) ** 2 - sum(images**2 for images in each)) // 2)
    with progress.stage("decoding", total=sum(each)) as stage:
        told = lambda done, _: stage.advance(done - stage.done)  # noqa: E731
        return read_folder(folder, size, min_images=2, skip_broken=options.skip_broken, progress=told).faces


def _listed_images(listed: pair_lists.PairList, size: int, progress: Progress) -> Tensor:
    """Photographs as a folder's are read; the encoded images of a .bin as they are."""
    paths = [image for image in listed.images if isinstance(image, Path)]
    with progress.stage("decoding", total=len(listed.images)) as stage:
        told = lambda done, _: stage.advance(done - stage.done)  # noqa: E731
        return read_images(paths, size, told) if paths else pair_lists.load_images(listed.images, size, told)


def _embedded(net: Net, weights: Weights, images: Tensor, head: Tensor | None, progress: Progress) -> Tensor:
    with progress.stage("embedding", total=len(images)) as stage:
        return embed(net, weights, images, head=head, progress=stage.advance).cpu()
