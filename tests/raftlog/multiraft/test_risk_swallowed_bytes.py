"""Risk: TCP swallows bytes while datagrams flow, and followers trust a leader that they cannot hear."""

from typing import Any

from .conftest import Runner, cluster


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
            outgoing = nodes[1].links._peers[2].outgoing
            assert outgoing is not None
            outgoing._transport = Swallowing(outgoing._transport)  # type: ignore[assignment]
            nodes[1].links.post(2, "anything", b"")
            await nodes[1].until(lambda: (2, False) in nodes[1].changes)
            await nodes[2].until(lambda: (1, False) in nodes[2].changes)
            await nodes[1].until_live(2)
            await nodes[2].until_live(1)
            assert nodes[1].links._peers[2].outgoing is not outgoing
            assert nodes[1].links.stats.links_swallowing + nodes[2].links.stats.links_swallowing >= 1

    run(main())
