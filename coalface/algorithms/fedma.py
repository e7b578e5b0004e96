"""FedMA: layer by layer, channels that do the same work are found in the centres' networks, and averaged.

Wang, Yurochkin, Sun, Papailiopoulos, Khazaeni 2020; a baseline of FedGPAD.

keeps   recordings, the layers that were not matched yet
sends   one layer a round, and statistics of those before   REVEALED: the server must see each centre's to match them

In round ℓ the server matches layer ℓ. Centres then hold the layers up to ℓ fixed and train the rest anew. After as
many rounds as there are layers the detector is complete, and the next pass begins from it. What is held fixed has new
batch-norm statistics all the same: a mean of layers does not give out what each of them did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from coalface import wire
from coalface.algorithms.fedpad import live_or_attack
from coalface.algorithms.matching import channel_atoms, match
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.channels import Layer, reordered, resnet18_layers
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation
from coalface.received import Received
from coalface.wire import Revealed, sends

LAYERS = resnet18_layers()


@dataclass(frozen=True)
class Server:
    complete: Weights  # the detector after the last whole pass
    matched: Weights  # the layers of this pass so far
    layer: int  # that comes next
    passes: int  # that are over
    orders: dict[str, Tensor]  # of this pass's last layer: centre -> where the matching put its channels


@dataclass(frozen=True)
class Broadcast(wire.Broadcast):
    detector: Weights = sends("the detector, with the layers that were matched so far")
    layer: int = sends("which layer comes next")
    passes: int = sends("how often all layers were matched before")
    continues: int = sends("1 if the centre took part in the last round, so that the layers it kept still fit")
    order: Tensor = sends("where the matching put the channels of the centre's last layer; −1 where it has no more")


@dataclass(frozen=True)
class Upload(wire.Upload):
    weight = None
    layer: Revealed[Weights] = sends(
        "ONE LAYER of the centre's own detector, and batch-norm statistics of those before"
    )


@dataclass(frozen=True)
class Private(wire.Private):
    later: Weights  # layers that the server has not seen


@dataclass(frozen=True)
class Trained:
    over: Weights  # statistics of the layers that are over: the mean of several layers has others than they had
    layer: Weights  # is matched after this round
    later: Weights


@dataclass(frozen=True)
class FedMA(Method):
    """Matched averaging of ResNet-18: channels are put in a common order before they are averaged."""

    same_start: bool = False  # all centres begin with one random network; by default each draws its own
    matching_passes: int = 5  # over the centres, at most; 0: channels are averaged as they lie

    world = "recordings"
    network = "resnet18"
    normalisation: ClassVar[SharedNormalisation] = "average"
    common = None
    types: ClassVar[Types] = Types(Server, Broadcast, Upload, Private)

    def __post_init__(self) -> None:
        if self.matching_passes < 0:
            raise ValueError(f"matching_passes must be at least 0, not {self.matching_passes}")

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        if net.name != self.network:
            raise ValueError(f"FedMA knows the channels of {self.network}, not of {net.name}: set model={self.network}")
        return Server(weights, Weights({}, {}), layer=0, passes=0, orders={})

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        detector = joined(server.complete, server.matched)
        own = server.orders.get(str(client))
        longest = max(channels(layer, detector) for layer in LAYERS)  # so that the message is as long in every round
        order = torch.full((longest,), -1, device=detector.parameters[LAYERS[0].parameters[0]].device)
        if own is not None:
            order[: len(own)] = own
        return Broadcast(detector, server.layer, server.passes, int(own is not None), order)

    def expected(self, broadcast: Broadcast) -> Upload:
        over = statistics(part(broadcast.detector, LAYERS[: broadcast.layer]))
        return Upload(joined(over, LAYERS[broadcast.layer].of(broadcast.detector)))

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        own = broadcast.detector
        if broadcast.layer == broadcast.passes == 0 and not self.same_start:
            own = net.fresh(int(torch.randint(1 << 31, (), generator=generator)))
            own = own.map(lambda leaf: leaf.to(faces.labels.device))
        elif broadcast.continues and private is not None:
            last = LAYERS[broadcast.layer - 1]
            order = broadcast.order[: channels(last, own)]
            own = joined(own, reordered(private.later, last.along, order))
        before, this, after = LAYERS[: broadcast.layer], LAYERS[broadcast.layer], LAYERS[broadcast.layer + 1 :]
        over = part(own, before)
        return Local(Trained(statistics(over), this.of(own), part(own, after)), fixed=Weights(over.parameters, {}))

    def objective(self, net: Net, trained: Trained, fixed: Weights, batch: Batch) -> Losses:
        return live_or_attack(net, joined(fixed, trained.over, trained.layer, trained.later), batch)

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        return Upload(joined(trained.over, trained.layer))

    def keep(self, trained: Trained) -> Private:
        return Private(trained.later)

    def server_round(self, server: Server, received: Received) -> Server:
        layer, own = LAYERS[server.layer], dict(sorted(received.revealed("layer").items()))
        atoms = [channel_atoms(weights) for weights in own.values()]
        matches = layer.along and self.matching_passes
        found = match(atoms, self.matching_passes) if matches else [torch.arange(len(atom)) for atom in atoms]
        orders = {str(client): order.to(atoms[0].device) for client, order in zip(own, found, strict=True)}
        axes = tuple((name, 0) for name in layer.parameters + layer.statistics)
        aligned = [reordered(weights, axes, orders[str(client)]) for client, weights in own.items()]
        matched = joined(server.matched, mean(aligned))
        if server.layer + 1 < len(LAYERS):
            return Server(server.complete, matched, server.layer + 1, server.passes, orders)
        return Server(matched, Weights({}, {}), layer=0, passes=server.passes + 1, orders={})

    def monitors(self, server: Server) -> dict[str, float]:
        """Of the last layer: the share of neighbouring channels that the matching has parted, mean over centres."""
        moved = [float((order.diff() != 1).float().mean()) for order in server.orders.values()]
        return {"parted_channels": sum(moved) / len(moved)} if moved else {}

    def embedder(self, server: Server, private: Private | None = None) -> Weights:
        return server.complete


def channels(layer: Layer, weights: Weights) -> int:
    """How many channels a layer puts out."""
    return len(weights.parameters[layer.parameters[0]])


def part(weights: Weights, layers: tuple[Layer, ...]) -> Weights:
    """Several layers of a network."""
    return joined(*(layer.of(weights) for layer in layers))


def statistics(weights: Weights) -> Weights:
    """Nothing but the running statistics."""
    return Weights({}, weights.statistics)


def joined(*parts: Weights) -> Weights:
    """Layers put together; of a layer that several hold, the last one's."""
    parameters: dict[str, Tensor] = {}
    statistics: dict[str, Tensor] = {}
    for weights in parts:
        parameters |= weights.parameters
        statistics |= weights.statistics
    return Weights(parameters, statistics)


def mean(several: list[Weights]) -> Weights:
    """The plain mean, in float64 on the way."""

    def of(leaves: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        first = leaves[0]
        return {name: torch.stack([d[name] for d in leaves]).double().mean(0).to(first[name]) for name in first}

    return Weights(of([weights.parameters for weights in several]), of([weights.statistics for weights in several]))
