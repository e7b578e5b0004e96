"""Every method of the table, held to the same contract. A new method gets these tests by its line in the table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface import seeding, tree, wire
from coalface.algorithms import METHODS
from coalface.data.population import Population
from coalface.federation import Rounds
from coalface.liveness import liveness
from coalface.local import Batch, ClientResult, client_round, is_statistic
from coalface.method import Method
from coalface.models.net import Net
from coalface.privacy.audits import template_leak
from coalface.received import Received
from tests.conftest import SmallRun, noise_population, small_run

ROUND = 1
every_method = pytest.mark.parametrize("name", METHODS)
FACES = [name for name, kind in METHODS.items() if kind.world == "faces"]
RECORDINGS = [name for name in METHODS if name not in FACES]


@pytest.fixture
def run(name: str, net: Net, population: Population, tmp_path: Path) -> SmallRun:
    return small_run(name, net, population, tmp_path)


def broadcast_to(run: SmallRun, server: Any, client: int = 0) -> Any:
    """As in a round that calls the first three clients."""
    called = list(range(min(3, len(run.population))))
    return run.method.broadcast(server, run.method.open_round(server, called, seeding.generator(0, "round", 1)), client)


def one_client(run: SmallRun, server: Any, client: int = 0, private: Any = None) -> ClientResult:
    broadcast = broadcast_to(run, server, client)
    faces = run.population[client]
    return client_round(run.method, run.net, broadcast, private, faces, run.training, ROUND, 0, client)


@every_method
def test_uploads_and_broadcasts_survive_the_wire(run: SmallRun) -> None:
    server = run.begin()
    broadcast = broadcast_to(run, server)
    assert tree.sha256(wire.decode(wire.encode(broadcast), broadcast)) == tree.sha256(broadcast)
    upload = one_client(run, server).upload
    data = wire.encode(upload)
    assert len(data) == wire.encoded_size(upload)
    assert tree.sha256(wire.decode(data, run.method.expected(broadcast))) == tree.sha256(upload)


@every_method
def test_every_field_says_who_sees_it_and_what_it_is(name: str) -> None:
    types = METHODS[name].types
    rows = [*wire.disclosure(types.upload), *(wire.disclosure(types.collected) if types.collected else ())]
    assert all(row.what for row in rows)
    assert all(row["what"] for row in wire.described(types.broadcast))
    assert all(dataclasses.is_dataclass(kind) for kind in (types.server, types.broadcast, types.upload))


@every_method
def test_whoever_gives_attack_1_a_handle_on_sums_says_so(name: str) -> None:
    """A row of one's own, codewords, or errors that the server knows: declared, or a template is revealed anyway.

    Wherever the audit has such a way to take a sum apart, `privacy.require_secure_sum` refuses the method.
    """
    types = METHODS[name].types
    up, down = wire.disclosure(types.upload), {field.name for field in dataclasses.fields(types.broadcast)}
    handles = {"head", "code_head"} & {row.field for row in up} | {*template_leak.KNOWN_ERRORS} & down
    declared = any(row.apart or row.seen is wire.Seen.REVEALED for row in up)
    assert bool(handles) == declared or types.collected is not None or METHODS[name].world == "recordings"


def without_group_sums(upload: Any) -> Any:
    """A client's part of a group's sum is its own state by design; secure sums mask it on the wire."""
    grouped = [row.field for row in wire.disclosure(type(upload)) if row.seen is wire.Seen.GROUPED]
    return dataclasses.replace(upload, **{field: torch.zeros_like(getattr(upload, field)) for field in grouped})


@every_method
def test_private_state_and_images_are_not_in_the_bytes(run: SmallRun) -> None:
    server = run.begin()
    private = None
    for _ in range(2):  # the second time with something kept from the first
        result = one_client(run, server, private=private)
        private = result.private
        sent = wire.encode(without_group_sums(result.upload))
        faces = run.population[0]
        assert faces.images[0].numpy().tobytes()[:64] not in sent
        for leaf in tree.leaves(private).values():
            canary = leaf.detach().contiguous().numpy().tobytes()[:32]
            assert len(canary) < 16 or canary not in sent


@every_method
def test_the_canary_test_can_fail(run: SmallRun) -> None:
    """If the bytes did hold a private tensor, the test above would find it."""
    result = one_client(run, run.begin())
    secret = torch.rand(64, generator=torch.Generator().manual_seed(1))

    @dataclasses.dataclass(frozen=True)
    class Leaky(wire.Upload):
        secret: wire.Revealed[torch.Tensor] = wire.sends("a leak")

    assert secret.numpy().tobytes()[:32] in wire.encode(Leaky(secret))
    assert secret.numpy().tobytes()[:32] not in wire.encode(result.upload)


@every_method
def test_what_stays_cannot_be_encoded(run: SmallRun) -> None:
    private = one_client(run, run.begin()).private
    assert (private is None) == (run.method.types.private is None)
    if private is not None:
        with pytest.raises(TypeError):
            wire.encode(private)  # type: ignore[arg-type]


@every_method
def test_the_objective_is_pure(run: SmallRun) -> None:
    faces = run.population[0]
    broadcast = broadcast_to(run, run.begin())
    local = run.method.start(run.net, broadcast, None, faces, seeding.generator(0, "start", 0))
    batch = Batch(faces.images, faces.labels, depth=faces.depth)

    def state() -> tuple[str, str]:
        learnt = {name: leaf for name, leaf in tree.leaves(local.trained).items() if not is_statistic(name)}
        return tree.sha256({name.replace("/", "|"): leaf for name, leaf in learnt.items()}), tree.sha256(local.fixed)

    before = state()
    first = run.method.objective(run.net, local.trained, local.fixed, batch)
    second = run.method.objective(run.net, local.trained, local.fixed, batch)
    assert {k: v.tolist() for k, v in first.items()} == {k: v.tolist() for k, v in second.items()}
    assert state() == before  # running statistics are moved by the forward pass, where a method says so


@every_method
def test_one_client_alone_is_exact(run: SmallRun) -> None:
    """The mean over one client is what it sent, bit for bit, whatever its weight."""
    server = run.begin()
    upload = one_client(run, server).upload
    received = Received(run.method.types.upload, lambda client: run.method.group(server, client))
    received.add(0, upload)
    for row in wire.disclosure(run.method.types.upload):
        if row.seen is wire.Seen.SUMMED:
            assert tree.sha256(received.mean(row.field)) == tree.sha256(getattr(upload, row.field))


@every_method
def test_the_order_of_clients_does_not_matter(run: SmallRun) -> None:
    server = run.begin()
    clients = range(min(3, len(run.population)))
    uploads = [(client, one_client(run, server, client).upload) for client in clients]
    states = []
    for order in (uploads, uploads[::-1]):
        received = Received(run.method.types.upload, lambda client: run.method.group(server, client))
        for client, upload in order:
            received.add(client, upload)
        states.append(run.method.server_round(server, received))
    for name, leaf in tree.leaves(states[0]).items():
        torch.testing.assert_close(leaf, tree.leaves(states[1])[name], rtol=0, atol=1e-7)


@every_method
def test_resume_equals_the_undisturbed_run(name: str, net: Net, population: Population, tmp_path: Path) -> None:
    rules = Rounds(rounds=4, cohort=4)
    undisturbed = small_run(name, net, population, tmp_path / "a")
    expected = tree.sha256(undisturbed.run(rules))
    for stop in (1, 3):
        folder = tmp_path / f"stopped{stop}"
        small_run(name, net, population, folder).run(rules, stop_after=stop)
        again = small_run(name, net, population, folder)
        assert tree.sha256(again.run(rules)) == expected
        assert again.stage.private.sha256() == undisturbed.stage.private.sha256()
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in again.stage.ledger()]
        assert rows == [{k: v for k, v in row.items() if k != "seconds"} for row in undisturbed.stage.ledger()]


@every_method
def test_the_server_state_survives_the_disk(run: SmallRun) -> None:
    server = run.run(Rounds(rounds=1))
    resumed = run.stage.resume()
    assert resumed is not None and tree.sha256(resumed[1]) == tree.sha256(server)


@every_method
def test_the_embedder_embeds(run: SmallRun) -> None:
    server = run.run(Rounds(rounds=1))
    private = run.stage.private.load(0, 2) if run.method.personal else None
    images = run.population[0].images
    for weights in run.method.ensemble(server, private):
        assert run.net(weights, images).shape == (len(images), run.net.embedding)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_detector_gives_each_frame_a_probability_of_live(run: SmallRun) -> None:
    server = run.run(Rounds(rounds=1))
    images = run.population[0].images
    scores = liveness(run.net, run.method.ensemble(server), images, batch=4)
    assert scores.shape == (len(images),) and bool(((scores >= 0) & (scores <= 1)).all())


@pytest.mark.parametrize("name", FACES)
def test_batch_norm_statistics_stay_frozen_by_default(name: str, population: Population, tmp_path: Path) -> None:
    run = small_run(name, Net("tiny_bn", embedding=8, size=16), population, tmp_path)
    start, server = run.begin(), run.run(Rounds(rounds=1))
    before, after = run.method.embedder(start), run.method.embedder(server)
    assert before.statistics and tree.sha256(before.statistics) == tree.sha256(after.statistics)
    sent = tree.leaves(one_client(run, start).upload)
    assert not any("statistics" in path for path in sent)


@every_method
def test_settings_survive_json(name: str) -> None:
    from coalface import config

    method: Method = METHODS[name]()
    assert config.from_json(Method, config.to_json(method)) == method


@pytest.mark.parametrize("name", FACES)
def test_several_identities_per_client_run_or_are_refused_in_words(name: str, net: Net, tmp_path: Path) -> None:
    several = noise_population(clients=3, identities_each=2)
    if METHODS[name].one_identity:
        with pytest.raises(ValueError, match="one identity per client, and 3 clients hold 6"):
            METHODS[name]().check(several)
    else:
        small_run(name, net, several, tmp_path).run(Rounds(rounds=1))
