"""Links over real loopback sockets: liveness, RPC, and the limits for strangers."""

import asyncio
import contextlib
import logging
import random
import socket
from itertools import pairwise
from typing import Any

import pytest
from patching import patch_method
from raftlog.conftest import LOOPBACK, Runner, Watched, cluster, introduce

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links import links as links_module
from barnabas_raftlog.links import peers as peers_module
from barnabas_raftlog.links.admin import ask
from barnabas_raftlog.links.connection import BYTES_AT_ONCE, Connection
from barnabas_raftlog.links.framing import FRAME_BYTES_MAX, FrameKind, encode_frame, frame_of, read_header
from barnabas_raftlog.links.handshake import HandshakeRefusedError
from barnabas_raftlog.links.link_delay import LinkDelay
from barnabas_raftlog.links.links import LinkDownError, Links, NodeAddress, RemoteError, monotonic_ms
from barnabas_raftlog.links.liveness import Datagram, PeerLiveness, decode_datagram, encode_datagram
from barnabas_raftlog.links.peers import Peer
from barnabas_raftlog.links.raft_frames import SPLIT_MESSAGES, encode_messages
from barnabas_raftlog.links.rpc import Wire
from barnabas_raftlog.raft.messages import GroupId, LeadershipEnded

GROUP = GroupId(bytes(20))


async def ended(reader: asyncio.StreamReader) -> None:
    """Read until the other side has closed, in order or by a reset."""
    with contextlib.suppress(ConnectionResetError):
        await reader.read()


async def echo(source: int, body: bytes) -> bytes:
    return b"%d:%s" % (source, body)


def test_three_nodes_find_each_other(run: Runner) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            for node_id, node in nodes.items():
                await node.until_live(*({1, 2, 3} - {node_id}))
            row = nodes[1].links.status()[0]
            assert (row.node_id, row.live, row.incarnation, row.trouble) == (2, True, 102, "")

    run(main())


def test_a_call_that_comes_while_a_node_closes_is_served_by_nobody(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing waits for the calls that are being served then; a call that began later would have outlived the node."""
    received = asyncio.Queue[str]()

    async def main() -> None:
        async with cluster(2) as nodes:
            services = nodes[2].links._services
            on_call = services.on_call

            def noted(source: int, wire: Wire, header: tuple[Any, ...], payload: memoryview) -> None:
                on_call(source, wire, header, payload)
                received.put_nowait(header[2])

            patch_method(monkeypatch, services, "on_call", noted)
            await nodes[1].until_live(2)
            may_end = asyncio.Event()
            served = list[bytes]()

            async def slow(_: int, body: bytes) -> bytes:
                served.append(body)
                while not may_end.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await may_end.wait()
                return body

            nodes[2].links.serve("slow", slow)
            call = nodes[1].links.call
            first = asyncio.create_task(call(2, "slow", b"before", 10.0))
            assert await received.get() == "slow"
            closing = asyncio.create_task(nodes[2].links.close())
            others = [asyncio.create_task(call(2, method, b"meanwhile", 10.0)) for method in ("slow", "nobody's")]
            assert [await received.get() for _ in others] == ["slow", "nobody's"]
            may_end.set()
            await closing
            for made in others:
                with pytest.raises(LinkDownError):
                    await made
            assert await asyncio.gather(first, return_exceptions=True)
            assert served == [b"before"]

    run(main())


def test_messages_travel_on_the_dialled_connection(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            frames, _ = encode_messages([(GROUP, LeadershipEnded(4, 1, 2))])
            assert nodes[1].links.send_frames(2, frames)
            await nodes[2].until(lambda: bool(nodes[2].messages))
            assert nodes[2].messages == [(1, GROUP, LeadershipEnded(4, 1, 2))]
            assert not nodes[1].links.send_frames(9, frames)

    run(main())


def test_a_closed_peer_is_silent_at_once_and_live_again_when_it_returns(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            address = nodes[2].links.address
            await nodes[2].links.close()
            await nodes[1].until(lambda: not nodes[1].links.is_live(2))
            successor = Watched(Links("c", 2, 999, address, {1: nodes[1].links.address}))
            await successor.links.start()
            await nodes[1].until_live(2)
            assert nodes[1].changes == [(2, True), (2, False), (2, True)]
            assert nodes[1].links.status()[0].incarnation == 999
            await successor.links.close()

    run(main())


@pytest.mark.parametrize("direction", ["incoming", "outgoing"])
def test_a_peer_is_silent_at_once_when_either_connection_is_lost(run: Runner, direction: str) -> None:
    """A process that dies closes both, but not in the same moment, and half a link carries no answers."""

    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            connection = getattr(nodes[1].links._peers[2], direction)
            connection.abort("a test")
            await connection.finished
            assert nodes[1].changes == [(2, True), (2, False)]
            assert getattr(nodes[1].links._peers[2], direction) is None
            if direction == "outgoing":
                assert nodes[1].links.status()[0].trouble == "a test"
            await nodes[1].until(lambda: nodes[1].changes[1:] == [(2, False), (2, True)])
            await nodes[2].until(lambda: nodes[2].changes[1:] == [(1, False), (1, True)])

    run(main())


def test_of_a_peer_that_fell_silent_nothing_is_heard_before_it_is_live_again(run: Runner) -> None:
    """One connection ends, and on the other, far behind that, come bytes that a leader sent before it died."""

    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            frames, _ = encode_messages([(GROUP, LeadershipEnded(4, 2, 1))])

            def speak_late(_: int, live: bool) -> None:
                if not live:
                    nodes[2].links.send_frames(1, frames)

            nodes[1].links.on_peer.append(speak_late)
            outgoing = nodes[1].links._peers[2].outgoing
            assert outgoing is not None
            outgoing.abort("lost")
            await nodes[1].until(lambda: nodes[1].changes == [(2, True), (2, False), (2, True)])
            assert nodes[1].messages == []

    run(main())


def test_links_close_in_the_very_moment_in_which_a_connection_is_made(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[2].until_live(1)
            links = Links("c", 1, 999, LOOPBACK, {2: nodes[2].links.address})
            connected = links.on_connected
            closing = asyncio.get_running_loop().create_future()

            def close_now(connection: Connection) -> None:
                connected(connection)
                if connection.is_outgoing and not closing.done():
                    # Its first step cancels the dialling task, which does not know yet that it has succeeded.
                    closing.set_result(asyncio.get_running_loop().create_task(links.close()))

            patch_method(monkeypatch, links, "on_connected", close_now)
            await links.start()
            await (await closing)
            assert not links._connections

    run(main())


def test_a_datagram_ends_the_wait_before_the_next_attempt_to_connect(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a cut is mended, the peer's datagrams say so before the backoff is over."""
    for name in ("BACKOFF_MS_MIN", "BACKOFF_MS_MAX"):
        monkeypatch.setattr(links_module, name, 3_600_000)

    async def main() -> None:
        is_cut = False
        failed = asyncio.Queue[Links]()
        dial_once = Links._dial_once
        on_datagram = Links._on_datagram

        async def dial_unless_cut(links: Links, peer: Peer) -> Connection | None:
            if not is_cut:
                return await dial_once(links, peer)
            failed.put_nowait(links)
            return None

        def hear_unless_cut(links: Links, data: bytes, address: object) -> None:
            if not is_cut:
                on_datagram(links, data, address)

        monkeypatch.setattr(Links, "_dial_once", dial_unless_cut)
        monkeypatch.setattr(Links, "_on_datagram", hear_unless_cut)
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            is_cut = True
            for node_id, node in nodes.items():
                peer = node.links._peers[3 - node_id]
                assert peer.outgoing is not None
                peer.outgoing.abort("a cut")
                peer.wake.set()  # so that each tries once in vain
            assert {await failed.get(), await failed.get()} == {node.links for node in nodes.values()}
            is_cut = False
            await nodes[1].until(lambda: nodes[1].changes == [(2, True), (2, False), (2, True)])

    run(main())


def test_an_attempt_to_connect_that_nobody_answers_ends_when_the_peer_is_heard(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lost its power in the middle of a handshake, and the new life of it knows nothing of that."""
    monkeypatch.setattr(peers_module, "HANDSHAKE_MS", 3_600_000)
    monkeypatch.setattr(peers_module, "ATTEMPT_MS_MIN", 1)

    async def main() -> None:
        attempts = asyncio.Queue[asyncio.StreamWriter]()

        async def forget(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            attempts.put_nowait(writer)

        async with await asyncio.start_server(forget, *LOOPBACK) as server, cluster(2, known=False) as nodes:
            nodes[1].links.add_peer(2, NodeAddress(*server.sockets[0].getsockname()))
            first = await attempts.get()
            assert attempts.empty()
            nodes[2].links.add_peer(1, nodes[1].links.address)
            second = await attempts.get()
            first.close()
            second.close()
            while not attempts.empty():
                attempts.get_nowait().close()

    run(main())


def test_an_attempt_after_one_that_was_too_short_is_longer_up_to_the_limit(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        patch_method(monkeypatch, asyncio.get_running_loop(), "time", lambda: 0.0)
        peer = Peer(2, NodeAddress("h", 1), PeerLiveness(1_000, 0))

        async def limit_of(end: type[Exception] | None, *, is_heard: bool = True) -> float | None:
            limit = None
            with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                async with peer.attempt():
                    assert peer._attempt is not None
                    if is_heard:
                        peer.on_heard()
                        peer.on_heard()
                    limit = peer._attempt.when()
                    if end is not None:
                        raise end
            return limit

        assert await limit_of(None, is_heard=False) == 5
        assert [await limit_of(TimeoutError) for _ in range(5)] == [1, 2, 4, 5, 5]
        assert [await limit_of(end) for end in (None, ConnectionRefusedError, TimeoutError, None)] == [5, 1, 1, 2]

    run(main())


def test_datagram_silence_makes_a_connected_peer_silent_on_both_sides(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2, liveness_timeout_ms=250) as nodes:
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            nodes[2].links._datagrams.close()  # TCP stays
            await nodes[1].until(lambda: not nodes[1].links.is_live(2))
            await nodes[2].until(lambda: not nodes[2].links.is_live(1))
            assert nodes[1].links.is_connected(2)
            assert "no fresh datagram" in nodes[1].links.status()[0].trouble

    run(main())


def test_a_pause_of_this_node_is_not_held_against_its_peers(run: Runner) -> None:
    async def main() -> None:
        jump_ms = 0
        async with cluster(2, clock=lambda: monotonic_ms() + jump_ms) as nodes:
            await nodes[1].until_live(2)
            receive = nodes[1].links._datagrams.on_datagram
            enough = asyncio.Event()
            count = 0

            def note(data: bytes, address: object) -> None:
                nonlocal count
                count += 1
                receive(data, address)
                if count == 4:
                    enough.set()

            jump_ms = 10_000
            nodes[1].links._datagrams.on_datagram = note
            await enough.wait()
            assert nodes[1].changes == [(2, True)]
            assert nodes[1].links.is_live(2)

    run(main())


def test_frames_larger_than_every_buffer_arrive(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            nodes[2].links.serve("echo", echo)
            body = random.Random(1).randbytes(6 << 20)
            calls = [nodes[1].links.call(2, "echo", part, 10) for part in (b"small", body, b"behind")]
            answers = await asyncio.gather(*calls)
            assert answers == [b"1:small", b"1:" + body, b"1:behind"]
            with pytest.raises(LinkDownError, match="fits in no frame"):
                await nodes[1].links.call(2, "echo", bytes(64 << 20), 10)

    run(main())


def test_after_a_silence_both_connections_are_made_anew(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2, liveness_timeout_ms=250) as nodes:
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            old = nodes[1].links._peers[2].outgoing
            datagrams = nodes[2].links._datagrams
            send = datagrams.send

            async def lose(data: bytes, address: tuple[object, ...]) -> None:
                """A one-way cut."""

            datagrams.send = lose  # type: ignore[method-assign]
            await nodes[1].until(lambda: not nodes[1].links.is_live(2))
            await nodes[2].until(lambda: not nodes[2].links.is_live(1))
            datagrams.send = send  # type: ignore[method-assign]
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            assert nodes[1].changes[:3] == [(2, True), (2, False), (2, True)]
            assert nodes[2].changes[:3] == [(1, True), (1, False), (1, True)]
            assert nodes[1].links._peers[2].outgoing is not old

    run(main())


def test_after_a_silence_a_peer_is_live_once_however_many_datagrams_are_read_at_once(run: Runner) -> None:
    """A loop that lagged reads several before it hears that the connections are gone, which the first one ended."""

    async def main() -> None:
        now_ms = 0
        async with cluster(2, clock=lambda: now_ms, liveness_timeout_ms=250) as nodes:
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            links = nodes[1].links
            peer = nodes[1].links._peers[2]
            receive = links._datagrams.on_datagram
            held = list[bytes]()
            enough = asyncio.Event()
            before_the_silence = peer.liveness._sequence
            old = peer.outgoing

            def hold(data: bytes, _: object) -> None:
                datagram = decode_datagram(data, 1, links._mark, None)
                if datagram is not None and datagram.echo_sequence > before_the_silence:
                    held.append(data)
                if len(held) == 3:
                    enough.set()

            links._datagrams.on_datagram = hold
            now_ms = 300
            await nodes[1].until(lambda: not links.is_live(2))
            await nodes[2].until(lambda: not nodes[2].links.is_live(1))
            await enough.wait()
            links._datagrams.on_datagram = receive
            for data in held:
                receive(data, None)
            assert not links.is_live(2)
            await nodes[1].until_live(2)
            assert nodes[1].changes == [(2, True), (2, False), (2, True)]
            assert peer.outgoing is not old

    run(main())


def test_two_that_no_longer_hear_each_other_though_their_tcp_works_make_the_link_anew(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        now_ms = 0
        async with cluster(2, clock=lambda: now_ms, liveness_timeout_ms=250) as nodes:
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            links = nodes[1].links
            peer = nodes[1].links._peers[2]
            receive = links._datagrams.on_datagram
            old = (peer.outgoing, peer.incoming)
            discarded = asyncio.Event()
            made_anew = list[str]()
            reconnect = links._reconnect

            def note(data: bytes, address: object) -> None:
                ignored = links.stats.datagrams_ignored
                receive(data, address)
                if links.stats.datagrams_ignored > ignored:
                    discarded.set()

            def note_reason(peer: Peer, reason: str) -> None:
                made_anew.append(reason)
                reconnect(peer, reason)

            links._datagrams.on_datagram = note
            patch_method(monkeypatch, links, "_reconnect", note_reason)
            peer.liveness._last_sequence = 1 << 63  # as if a forged datagram had counted
            await discarded.wait()
            now_ms = 300
            await nodes[1].until(lambda: not links.is_live(2))
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            assert nodes[1].changes == [(2, True), (2, False), (2, True)]
            assert set(made_anew) == {"its datagrams do not count"}
            assert peer.outgoing not in old
            assert peer.incoming not in old
            before = peer.liveness.received
            enough = asyncio.Event()

            def count(data: bytes, address: object) -> None:
                receive(data, address)
                if peer.liveness.received >= before + 3:
                    enough.set()

            links._datagrams.on_datagram = count
            await enough.wait()

    run(main())


def test_a_forged_datagram_of_a_sequence_that_nobody_can_have_reached_counts_for_nothing(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            links = nodes[1].links
            peer = nodes[1].links._peers[2]
            receive = links._datagrams.on_datagram
            enough = asyncio.Event()
            never_reached = Datagram(
                node_id=2,
                incarnation=102,
                sequence=1 << 63,
                echo_incarnation=0,
                echo_sequence=0,
                echo_delay_ms=0,
            )
            forged = encode_datagram(never_reached, 1, links._mark, None)

            def note(data: bytes, address: object) -> None:
                receive(forged, address)
                receive(data, address)
                if peer.liveness.received >= 5:
                    enough.set()

            links._datagrams.on_datagram = note
            await enough.wait()
            assert nodes[1].changes == [(2, True)]
            assert links.stats.datagrams_ignored >= 5

    run(main())


def test_who_breaks_the_protocol_loses_its_link_is_named_once_and_may_connect_again(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await nodes[1].until_live(2, 3)
            await nodes[2].until_live(1)
            connections = [nodes[1].links._peers[2].incoming, nodes[1].links._peers[2].outgoing]
            nodes[1].links.refuse(2, "of group 00: acknowledges what is not there")
            nodes[1].links.refuse(2, "of group 00: acknowledges what is not there")
            await nodes[1].until(lambda: nodes[1].changes[2:] == [(2, False), (2, True)])
            await nodes[2].until_live(1)
            assert nodes[1].links._peers[2].incoming not in connections
            assert nodes[1].links._peers[2].outgoing not in connections
            nodes[1].links.refuse(9, "of group 00: is nobody")
            texts = [fact.cause for fact in nodes[1].facts if fact.kind == "message refused"]
            assert texts[0] == "refused a message of node 2, of group 00: acknowledges what is not there"
            assert len(texts) == 2
            assert caplog.text.count("refused a message of node 2") == 1

    run(main())


def test_calls_are_answered_and_errors_come_back_by_name(run: Runner) -> None:
    class TopicUnknownError(BarnabasError):
        pass

    async def refuse(source: int, body: bytes) -> bytes:
        raise TopicUnknownError("no such topic")

    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            nodes[2].links.serve("echo", echo)
            nodes[2].links.serve("refuse", refuse)
            call = nodes[1].links.call
            assert await call(2, "echo", b"x", 5) == b"1:x"
            assert await call(2, "echo", bytes(1 << 20), 5) == b"1:" + bytes(1 << 20)
            with pytest.raises(RemoteError, match="TopicUnknownError: no such topic"):
                await call(2, "refuse", b"", 5)
            with pytest.raises(RemoteError, match="UnknownMethod"):
                await call(2, "nothing", b"", 5)
            with pytest.raises(LinkDownError, match="node 7 is not connected: it is unknown"):
                await call(7, "echo", b"", 5)

    run(main())


def test_a_call_times_out_and_its_late_answer_is_ignored(run: Runner) -> None:
    async def main() -> None:
        release = asyncio.Event()
        answered = asyncio.Event()

        async def slow(source: int, body: bytes) -> bytes:
            await release.wait()
            answered.set()
            return b"late"

        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            nodes[2].links.serve("slow", slow)
            nodes[2].links.serve("echo", echo)
            with pytest.raises(TimeoutError):
                await nodes[1].links.call(2, "slow", b"", 0.01)
            cancelled = asyncio.ensure_future(nodes[1].links.call(2, "slow", b"", 5))
            await asyncio.sleep(0)
            cancelled.cancel()
            release.set()
            await answered.wait()
            assert await nodes[1].links.call(2, "echo", b"x", 5) == b"1:x"

    run(main())


def test_a_call_fails_when_its_connection_is_lost(run: Runner) -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def never(source: int, body: bytes) -> bytes:
            entered.set()
            await asyncio.Event().wait()
            return b""

        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            nodes[2].links.serve("never", never)
            call = asyncio.ensure_future(nodes[1].links.call(2, "never", b"", 10))
            await entered.wait()
            await nodes[2].links.close()
            with pytest.raises(LinkDownError):
                await call

    run(main())


def test_a_dialled_peer_that_closes_before_the_handshake_is_neither_counted_nor_warned_of(
    run: Runner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that dials turns nobody away, and a peer that is starting is nothing to warn of."""

    async def main() -> None:
        async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            await writer.wait_closed()

        async with cluster(1) as nodes, await asyncio.start_server(close, *LOOPBACK) as server:
            links = nodes[1].links
            closed = asyncio.Event()
            on_closed = links.on_closed

            def noted(connection: Connection) -> None:
                on_closed(connection)
                closed.set()

            patch_method(monkeypatch, links, "on_closed", noted)
            links.add_peer(2, NodeAddress(*server.sockets[0].getsockname()))
            await closed.wait()
            assert links.stats.connections_refused == 0

    run(main())
    assert not caplog.records


def test_a_peer_whose_port_is_closed_is_in_trouble_for_that_reason(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        with socket.create_server(LOOPBACK) as server:
            address = NodeAddress(*server.getsockname())
        async with cluster(1) as nodes:
            links = nodes[1].links
            dialled = asyncio.Event()
            dial_once = links._dial_once

            async def dial(peer: Peer) -> Connection | None:
                connection = await dial_once(peer)
                dialled.set()
                return connection

            patch_method(monkeypatch, links, "_dial_once", dial)
            links.add_peer(2, address)
            await dialled.wait()
            assert links.status()[0].trouble.startswith("cannot connect: ")

    run(main())


def test_datagrams_that_go_out_are_counted(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            links = nodes[1].links
            sent: list[bytes] = []
            went_out = asyncio.Event()
            before = links.stats.datagrams_out
            send = links._datagrams.send

            async def noted(data: bytes, address: tuple[object, ...]) -> None:
                sent.append(data)
                went_out.set()
                await send(data, address)

            monkeypatch.setattr(links._datagrams, "send", noted)
            await went_out.wait()
            assert links.stats.datagrams_out - before == len(sent)

    run(main())


def test_a_bug_in_a_handler_is_answered_and_reported(run: Runner) -> None:
    async def main() -> None:
        async def broken(source: int, body: bytes) -> bytes:
            return bytes(body[7])

        async def impossible(source: int, body: bytes) -> bytes:
            raise AssertionError("invariant")

        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            nodes[2].links.serve("broken", broken)
            nodes[2].links.serve("impossible", impossible)
            with pytest.raises(RemoteError, match="InternalError: IndexError"):
                await nodes[1].links.call(2, "broken", b"", 5)
            assert [type(error) for error in reported] == [IndexError]
            with pytest.raises(RemoteError, match="InternalError"):
                await nodes[1].links.call(2, "impossible", b"", 5)
            with pytest.raises(AssertionError, match="invariant"):
                await nodes[2].links.wait()

    run(main())


@pytest.mark.parametrize("kind", [FrameKind.CALL, FrameKind.POST, FrameKind.RAFT])
def test_on_a_connection_that_was_dialled_only_a_reply_is_taken_for_one(run: Runner, kind: FrameKind) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)

            async def answer_oddly(source: int, body: bytes) -> bytes:
                incoming = nodes[2].links._peers[source].incoming
                assert incoming is not None
                (call_id,) = nodes[1].links._peers[2].calls._waiting
                incoming.send(encode_frame((kind, call_id, None, "")))
                await asyncio.Event().wait()
                return b""

            nodes[2].links.serve("odd", answer_oddly)
            with pytest.raises(LinkDownError, match=f"malformed: frame of kind {kind} on a connection that we dialled"):
                await nodes[1].links.call(2, "odd", b"", 10)

    run(main())


def test_only_entries_come_in_frames_that_are_larger_than_others(run: Runner, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            body = bytes(FRAME_BYTES_MAX)
            nodes[1].links.send_frames(2, [encode_frame((FrameKind.POST, "note"), [body], len(body))])
            await nodes[1].until(lambda: (2, False) in nodes[1].changes)

    run(main())
    assert "malformed: frame of kind 9 and" in caplog.text


def read_at_once(connection: Connection, frames: list[list[Any]]) -> None:
    """Let a connection find all of this in its buffer, as if one read had brought it."""
    data = b"".join(bytes(part) for frame in frames for part in frame)
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def incoming_of(node: Watched, peer: int) -> Connection:
    incoming = node.links._peers[peer].incoming
    assert incoming is not None
    return incoming


def heartbeats(terms: range) -> list[list[Any]]:
    return encode_messages([(GROUP, LeadershipEnded(term, 1, 2)) for term in terms])[0]


@pytest.mark.parametrize("delay", [None, LinkDelay(1.0)])
def test_of_frames_that_come_together_each_large_one_has_a_callback_of_its_own(
    run: Runner, delay: LinkDelay | None
) -> None:
    async def main() -> None:
        async with cluster(2, delay=delay) as nodes:
            await nodes[2].until_live(1)
            connection = incoming_of(nodes[2], 1)
            terms = range(1, 4 * SPLIT_MESSAGES + 1)
            pieces = heartbeats(terms)
            small = heartbeats(range(9_000, 9_010))
            assert len(pieces) == 4
            assert all(len(piece[0]) >= BYTES_AT_ONCE for piece in pieces)
            read_at_once(connection, [*small, *pieces, *small])
            heard = [len(nodes[2].messages)]
            loop = asyncio.get_running_loop()

            def look() -> None:
                heard.append(len(nodes[2].messages))
                if heard[-1] < len(terms) + 20:
                    loop.call_soon(look)

            look()
            await nodes[2].until(lambda: len(nodes[2].messages) == len(terms) + 20)
            expected = [*range(9_000, 9_010), *terms, *range(9_000, 9_010)]
            assert [message.term for _, _, message in nodes[2].messages] == expected
            assert max(after - before for before, after in pairwise([0, *heard])) <= SPLIT_MESSAGES + 10
            nodes[2].links.serve("echo", echo)
            assert await nodes[1].links.call(2, "echo", b"is read again", 10) == b"1:is read again"

    run(main())


def test_what_waits_for_its_callback_goes_with_the_connection(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[2].until_live(1)
            connection = incoming_of(nodes[2], 1)
            read_at_once(connection, heartbeats(range(1, 3 * SPLIT_MESSAGES + 1)))
            connection.abort("a test")
            await connection.finished
            await asyncio.sleep(0)
            assert len(nodes[2].messages) == SPLIT_MESSAGES
            assert not connection._frames

    run(main())


def test_posts_arrive_in_order_and_are_dropped_without_a_link(run: Runner) -> None:
    async def main() -> None:
        got: list[bytes] = []
        enough = asyncio.Event()

        async def note(source: int, body: bytes) -> bytes:
            got.append(body)
            if len(got) == 3:
                enough.set()
            return b""

        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            nodes[2].links.serve("note", note)
            nodes[1].links.post(5, "note", b"nobody")
            for body in (b"a", b"b", b"c"):
                nodes[1].links.post(2, "note", body)
            await enough.wait()
            assert got == [b"a", b"b", b"c"]
            assert nodes[1].links.stats.posts_dropped == 1

    run(main())


def test_an_admin_asks_with_a_blocking_socket(run: Runner) -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            nodes[1].links.serve_admins("echo", echo)
            host, port = nodes[1].links.address
            assert await asyncio.to_thread(ask, host, port, "echo", b"hi", 5.0) == b"-1:hi"
            with pytest.raises(RemoteError, match="UnknownMethod"):
                await asyncio.to_thread(ask, host, port, "nothing", b"", 5.0)
        with pytest.raises(LinkDownError):
            await asyncio.to_thread(ask, host, port, "echo", b"hi", 5.0)

    run(main())


def test_an_admin_without_the_secret_is_refused(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2, secret=b"s3cret") as nodes:
            await nodes[1].until_live(2)
            nodes[1].links.serve_admins("echo", echo)
            host, port = nodes[1].links.address
            with pytest.raises(HandshakeRefusedError, match="only one side has a secret"):
                await asyncio.to_thread(ask, host, port, "echo", b"hi", 5.0)
            assert await asyncio.to_thread(lambda: ask(host, port, "echo", b"hi", 5.0, secret=b"s3cret")) == b"-1:hi"

    run(main())


def test_an_admin_is_refused_what_is_for_nodes(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[2].until_live(1)
            host, port = nodes[1].links.address
            nodes[1].links.serve("records", echo)
            with pytest.raises(RemoteError, match="NotAllowed: 'records' is for nodes of the cluster only"):
                await asyncio.to_thread(lambda: ask(host, port, "records", b"hi", 5.0))
            assert await nodes[2].links.call(1, "records", b"hi", 5) == b"2:hi"

    run(main())


def test_a_newcomer_may_call_what_is_for_newcomers_and_nobody_else_may(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2, secret=b"s3cret") as nodes:
            await nodes[2].until_live(1)
            links = nodes[1].links
            links.key_of = {-7: b"key"}.get
            links.serve("records", echo)
            links.serve_admins("status", echo)
            links.serve_newcomers("join", echo)

            async def asked(method: str, secret: bytes, number: int) -> bytes:
                return await asyncio.to_thread(
                    lambda: ask(*links.address, method, b"hi", 5.0, secret=secret, number=number)
                )

            assert await asked("join", b"key", -7) == b"-7:hi"
            for method, secret, number in (("records", b"key", -7), ("status", b"key", -7), ("join", b"s3cret", -1)):
                with pytest.raises(RemoteError, match="NotAllowed"):
                    await asked(method, secret, number)
            for secret, number in ((b"key", -8), (b"key", -1), (b"s3cret", -7)):
                with pytest.raises(HandshakeRefusedError, match="secrets differ"):
                    await asked("join", secret, number)
            with pytest.raises(RemoteError, match="NotAllowed"):
                await nodes[2].links.call(1, "join", b"hi", 5)

    run(main())


def test_a_wrong_cluster_is_refused_in_words_on_both_sides(run: Runner, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        ours, theirs = (Watched(Links(name, n, 5, LOOPBACK, {})) for name, n in (("blue", 1), ("green", 2)))
        for node in (ours, theirs):
            await node.links.start()
        introduce({1: ours, 2: theirs})
        await ours.until(lambda: len(ours.facts) >= 2)
        await theirs.until(lambda: len(theirs.facts) >= 2)
        assert {fact.kind for fact in ours.facts} == {"handshake refused"}
        assert "belongs to cluster 'blue', node 2 to 'green'" in ours.links.status()[0].trouble
        assert not ours.changes
        for node in (ours, theirs):
            await node.links.close()

    run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4, "each side dials and is dialled, and says each once"
    assert all("blue" in line and "green" in line for line in lines)


@pytest.mark.parametrize(
    ("hello", "complaint"),
    [
        ((1, 1, "c", 1, 5, 1, bytes(16)), "somebody else claims to be node 1"),
        ((1, 1, "c", 8, 5, 1, bytes(16)), "node 8 is not a member"),
        ((1, 1, "c", 2, 5, 9, bytes(16)), "node 2 wants node 9"),
        ((1, 7, "c", 2, 5, 1, bytes(16)), "protocol version 7"),
    ],
)
def test_impostors_are_refused_in_words(run: Runner, hello: tuple[object, ...], complaint: str) -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            nodes[1].links.add_peer(2, NodeAddress("127.0.0.1", 1))
            reader, writer = await asyncio.open_connection(*nodes[1].links.address)
            writer.writelines([bytes(part) for part in encode_frame(hello)])
            answer = await reader.read()
            assert answer[8:10] == bytes((0x92, FrameKind.REFUSED))
            assert complaint in answer.decode(errors="replace")
            writer.close()
            await writer.wait_closed()

    run(main())


@pytest.mark.parametrize(
    ("garbage", "complaint"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP, and this port does not"),
        (bytes.fromhex("1603010200010001fc0303") + bytes(500), "it speaks TLS, and this port does not"),
        (b"\xff" * 64, "frame of 4294967295 bytes"),
        (b"\0\0\0\x08\0\0\0\x04\x94\x09\x01\x02", "frame header is not msgpack"),
    ],
)
def test_garbage_closes_its_own_connection_only(
    run: Runner, garbage: bytes, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            reader, writer = await asyncio.open_connection(*nodes[1].links.address)
            writer.write(garbage)
            assert await reader.read() == b""
            writer.close()
            assert nodes[1].links.is_live(2)
            assert nodes[1].changes == [(2, True)]

    run(main())
    assert any(f"malformed: {complaint}" in record.getMessage() for record in caplog.records)


def test_garbage_datagrams_are_counted_and_dropped(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            stats = nodes[1].links.stats
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                for size in (0, 1, 60, 76, 1400):
                    sock.sendto(b"\xba\x5b" + bytes(size), nodes[1].links.address)
            counted = asyncio.Event()
            receive = nodes[1].links._datagrams.on_datagram

            def count(data: bytes, address: object) -> None:
                receive(data, address)
                if stats.datagrams_ignored >= 5:
                    counted.set()

            nodes[1].links._datagrams.on_datagram = count
            await counted.wait()
            assert nodes[1].links.is_live(2)

    run(main())


def test_silent_strangers_are_evicted_oldest_first(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "STRANGERS_MAX", 3)

    async def main() -> None:
        async with cluster(1) as nodes:
            streams = [await asyncio.open_connection(*nodes[1].links.address) for _ in range(5)]
            for reader, _ in streams[:2]:
                await ended(reader)
            assert nodes[1].links.stats.strangers_evicted == 2
            for _, writer in streams:
                writer.close()

    run(main())


def test_strangers_that_have_left_count_no_more(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a scan of ports would have the handshake of a member evicted that has just begun."""
    monkeypatch.setattr(links_module, "STRANGERS_MAX", 2)

    async def main() -> None:
        async with cluster(1) as nodes:
            links = nodes[1].links
            for _ in range(5):
                reader, writer = await asyncio.open_connection(*links.address)
                writer.write_eof()
                await ended(reader)
                writer.close()
            reader, writer = await asyncio.open_connection(*links.address)
            writer.write(b"".join(encode_frame((FrameKind.HELLO, 1, "another", 2, 1, 1, bytes(16)))))
            assert (
                read_header(frame_of(memoryview(await reader.read(1 << 16))[4:], owned=True).header)[0]
                == FrameKind.REFUSED
            )
            writer.close()
            assert links.stats.strangers_evicted == 0

    run(main())


def test_who_is_not_known_is_neither_there_nor_waited_for(run: Runner) -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            links = nodes[1].links
            assert not links.is_connected(9)
            assert not links.is_live(9)
            assert (links.buffered_bytes(9), links.silence_ms(9)) == (0, 0)
            assert not links.send_frames(9, [encode_frame((FrameKind.POST, "note"))])

    run(main())


def test_whoever_waits_for_the_links_hears_of_their_end(run: Runner) -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            waiting = asyncio.create_task(nodes[1].links.wait())
            await nodes[1].links.close()
            await waiting

    run(main())


def test_a_listener_that_raises_breaks_the_links_and_not_a_connection_over_and_over(run: Runner) -> None:
    """A transport would close its connection, say so, and go on: both would dial each other for ever."""

    def unlucky(node_id: int, live: bool) -> None:
        raise ValueError(f"node {node_id} is {live}")

    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            nodes[1].links.on_peer.insert(0, unlucky)
            await nodes[2].links.close()
            with pytest.raises(ValueError, match="node 2 is False"):
                await nodes[1].links.wait()
            assert nodes[1].changes == [(2, True), (2, False)]

    run(main())


def test_a_handshake_has_its_time_and_is_swept_away_then(run: Runner) -> None:
    async def main() -> None:
        now_ms = 0
        async with cluster(1, clock=lambda: now_ms) as nodes:
            links = nodes[1].links
            ticked = asyncio.Event()

            def note() -> bool:
                ticked.set()
                return False

            async def tick() -> None:
                for _ in range(2):  # The second one begins when the first has ended.
                    ticked.clear()
                    await ticked.wait()

            links.is_busy = note
            reader, writer = await asyncio.open_connection(*links.address)
            writer.write(b"\0\0\0")
            while not links.stats.connections_accepted:
                await tick()
            now_ms = peers_module.HANDSHAKE_MS - 1
            await tick()
            assert len(links._strangers) == 1
            now_ms = peers_module.HANDSHAKE_MS
            await ended(reader)
            assert not links._strangers
            writer.close()

    run(main())


def test_what_follows_a_handshake_may_not_exceed_its_rights(run: Runner) -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            reader, writer = await asyncio.open_connection(*nodes[1].links.address)
            hello = (FrameKind.HELLO, 1, "", -1, 0, -1, bytes(16))
            raft = (FrameKind.RAFT, ((7, bytes(20), 1),))
            for header in (hello, (FrameKind.PROOF, b""), raft):
                writer.writelines([bytes(part) for part in encode_frame(header)])
            await ended(reader)
            assert nodes[1].messages == []
            writer.close()

    run(main())
