"""What Apache Kafka 4.4 offers and Barnabas does not, and why: docs/protocol.md shows it, `test_talks` checks it."""

from typing import NamedTuple

__all__ = ["LEFT_OUT", "LeftOut"]


class LeftOut(NamedTuple):
    """An API of Kafka's, or the versions of one from `since` on, that a broker with default settings does not offer."""

    key: int
    name: str
    reason: str
    since: int = 0


NO_SECURITY = "everybody who reaches a port is trusted: there is no authentication yet"
NO_QUOTAS = "there are no quotas yet"
NO_SHARES = "there are no share groups yet (KIP-932)"
NO_STREAMS = "Kafka Streams uses the classic protocol; there are no groups of its own yet (KIP-1071)"

LEFT_OUT = (
    LeftOut(17, "SaslHandshake", NO_SECURITY),
    LeftOut(36, "SaslAuthenticate", NO_SECURITY),
    LeftOut(48, "DescribeClientQuotas", NO_QUOTAS),
    LeftOut(49, "AlterClientQuotas", NO_QUOTAS),
    LeftOut(50, "DescribeUserScramCredentials", NO_SECURITY),
    LeftOut(51, "AlterUserScramCredentials", NO_SECURITY),
    LeftOut(76, "ShareGroupHeartbeat", NO_SHARES),
    LeftOut(77, "ShareGroupDescribe", NO_SHARES),
    LeftOut(78, "ShareFetch", NO_SHARES),
    LeftOut(79, "ShareAcknowledge", NO_SHARES),
    LeftOut(83, "InitializeShareGroupState", NO_SHARES),
    LeftOut(84, "ReadShareGroupState", NO_SHARES),
    LeftOut(85, "WriteShareGroupState", NO_SHARES),
    LeftOut(86, "DeleteShareGroupState", NO_SHARES),
    LeftOut(87, "ReadShareGroupStateSummary", NO_SHARES),
    LeftOut(88, "StreamsGroupHeartbeat", NO_STREAMS),
    LeftOut(89, "StreamsGroupDescribe", NO_STREAMS),
    LeftOut(90, "DescribeShareGroupOffsets", NO_SHARES),
    LeftOut(91, "AlterShareGroupOffsets", NO_SHARES),
    LeftOut(92, "DeleteShareGroupOffsets", NO_SHARES),
    LeftOut(93, "StreamsGroupTopologyDescriptionUpdate", NO_STREAMS),
    LeftOut(94, "UnregisterController", "the voters are those of `controller.quorum.voters`"),
)
