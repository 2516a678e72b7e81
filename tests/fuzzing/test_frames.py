"""The stream of frames of a seed, and the file of a failure."""

import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from fuzzing import failures
from fuzzing.batches import lying_batch
from fuzzing.boundaries import Names
from fuzzing.decoders import corpus
from fuzzing.decoders.targets import TARGETS, TooDearError
from fuzzing.failures import Failure
from fuzzing.frames import PAIRS, Frame, frames
from fuzzing.mutations import mutated
from fuzzing.peer_frames import HANDSHAKE_KINDS, KINDS, PeerLies
from fuzzing.watch import LogWatch

from barnabas_broker.server.dispatch import ROUTES
from barnabas_clients.protocol.registry import APIS, read_request_header
from barnabas_raftlog.errors import CorruptBatchError, MalformedMessageError
from barnabas_raftlog.links.framing import frame_of, read_header
from barnabas_raftlog.records.header import verify

TOPIC_ID = bytes(range(16))


def names() -> Names:
    return Names(("fuzz-0", "fuzz-never"), ("group",), {"fuzz-0": TOPIC_ID})


@pytest.fixture(scope="module")
def some() -> list[Frame]:
    return list(frames(1, 4 * len(PAIRS), names()))


def test_the_same_seed_gives_the_same_frames(some: list[Frame]) -> None:
    assert list(islice(frames(1, 4 * len(PAIRS), names()), 60)) == some[:60]
    assert [frame.data for frame in islice(frames(2, 4 * len(PAIRS), names()), 60)] != [
        frame.data for frame in some[:60]
    ]


def test_every_api_and_version_has_its_share_and_half_is_well_formed(some: list[Frame]) -> None:
    served = {(key, version) for key, route in ROUTES.items() for version in route.advertised}
    assert set(PAIRS) == {(key, version) for key, version in served if version >= ROUTES[key].served_from}
    assert Counter((frame.api_key, frame.version) for frame in some) == dict.fromkeys(PAIRS, 4)
    assert sum(frame.is_lie for frame in some) == len(some) // 2


def test_what_is_well_formed_reaches_its_handler(some: list[Frame]) -> None:
    for frame in (frame for frame in some if frame.is_lie):
        assert int.from_bytes(frame.data[:4], "big") == len(frame.data) - 4
        header = read_request_header(frame.data[4:])
        assert (header.api_key, header.api_version, header.correlation_id) == (
            frame.api_key,
            frame.version,
            frame.number,
        )
        APIS[frame.api_key].request.decode(frame.data[4:], frame.version, header.body_position)


def test_mutated_bytes_are_refused_by_many_and_taken_by_some(some: list[Frame]) -> None:
    refused = sum(not _is_readable(frame.data[4:]) for frame in some if not frame.is_lie)
    assert len(some) // 8 < refused < len(some) // 2


def _is_readable(data: bytes) -> bool:
    try:
        header = read_request_header(data)
        APIS[header.api_key].request.decode(data, header.api_version, header.body_position, exact=False)
    except (MalformedMessageError, KeyError):
        return False
    return True


def test_batches_lie_in_some_way_or_none() -> None:
    chance = random.Random(1)
    fates = Counter(_fate(lying_batch(chance, (0, 1))) for _ in range(400))
    assert min(fates["intact"], fates["corrupt"]) > 40


def _fate(batch: bytes) -> str:
    try:
        verify(memoryview(batch))
    except CorruptBatchError:
        return "corrupt"
    return "intact"


def test_mutations_spare_what_they_are_told_to() -> None:
    chance = random.Random(1)
    changed = [mutated(b"x" * 40, b"y" * 40, chance, spared=8) for _ in range(200)]
    assert all(data.startswith(b"x" * 8) for data in changed)
    assert len(set(changed)) > 150


def test_every_kind_of_peer_frame_is_a_frame() -> None:
    lies = PeerLies((bytes(20),), 4, 1)
    chance = random.Random(1)
    for kind in KINDS:
        read_header(frame_of(memoryview(lies.frame(kind, chance)[4:]), owned=True).header)
    for kind in HANDSHAKE_KINDS:
        assert frame_of(memoryview(lies.handshake(kind, chance)[4:]), owned=True).header


def test_a_failure_is_kept_with_the_ids_of_its_topics(tmp_path: Path) -> None:
    path = tmp_path / "failures.jsonl"
    failures.keep(path, 7, {"fuzz-0": TOPIC_ID}, [Failure("odd", (b"before" + TOPIC_ID, b"after"))])
    (kept,) = failures.load(path)
    assert (kept.what, kept.seed, kept.frames) == ("odd", 7, (b"before" + TOPIC_ID, b"after"))
    assert kept.with_ids({"fuzz-0": b"\xff" * 16}) == (b"before" + b"\xff" * 16, b"after")


def test_a_traceback_in_the_log_is_found_with_the_port_that_it_names(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("2026-01-01 00:00:00,000 INFO x: old ERROR\n")

    class Cluster:
        logs = (log,)

    watch = LogWatch(_cluster(Cluster()))
    with log.open("a") as out:
        out.write("2026-01-01 00:00:01,000 WARNING x: closing the connection from 127.0.0.1:5: no ERROR of ours\n")
        out.write(
            "2026-01-01 00:00:01,000 ERROR x: Produce v9 from 127.0.0.1:4711 failed\n  | Traceback\n  | odd\nhalf a l"
        )
    ((text, ports),) = watch.trouble()
    assert text.endswith("failed\n  | Traceback\n  | odd")
    assert ports == [4711]
    assert watch.trouble() == []


def _cluster(like: object) -> Any:
    return like


def test_a_corpus_is_as_small_as_goes_the_same_ways() -> None:
    chosen = corpus.minimised(TARGETS["quorum"], [b"", b"\x00", b"\x01", b"\x80", b"\x80\x00\x00\x00"])
    assert chosen[0] == b""
    assert len(chosen) < 5


def test_an_input_that_costs_too_much_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuzzing.decoders import targets

    monkeypatch.setattr(targets, "TIME_S_MAX", -1.0)
    with pytest.raises(TooDearError, match="0 ms of processor time for 3 bytes"):
        targets.Meter(lambda _: None)(b"abc")
