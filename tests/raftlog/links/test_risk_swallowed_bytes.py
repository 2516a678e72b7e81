"""Risk: TCP swallows bytes while datagrams flow, and followers trust a mute leader."""

from typing import Any, cast

from raftlog.conftest import Runner, cluster


class Swallowing:
    """A transport that takes what it is given to send, and loses it."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def writelines(self, buffers: object) -> None:
        """Say nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def test_a_link_that_swallows_bytes_is_made_anew_and_counts_as_silence(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2, liveness_timeout_ms=250) as nodes:
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            seen = [len(node.changes) for node in nodes.values()]
            swallowing = []

            def found() -> int:
                return sum(node.links.stats.links_swallowing for node in nodes.values())

            def swallow(*_: object) -> None:
                # Anew where a slow machine made a connection anew for another reason, before this one was found out.
                outgoing = nodes[1].links._peers[2].outgoing
                if outgoing is not None and nodes[1].links.is_live(2) and not found():
                    outgoing._transport = cast("Any", Swallowing(outgoing._transport))
                    swallowing.append(outgoing)
                    nodes[1].links.post(2, "anything", b"")

            nodes[1].links.on_peer.append(swallow)
            swallow()
            await nodes[1].until(lambda: found() > 0 and (2, False) in nodes[1].changes[seen[0] :])
            await nodes[2].until(lambda: (1, False) in nodes[2].changes[seen[1] :])
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            assert nodes[1].links._peers[2].outgoing not in swallowing

    run(main())
