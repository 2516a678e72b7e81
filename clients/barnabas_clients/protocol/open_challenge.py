"""OpenChallenge, API key 25186: begin to prove that one knows the secret of the cluster. Barnabas alone has it. Pure.

The answer has a number that was drawn for this connection. It is good for one proof, in a request on the same
connection; another challenge takes its place.
"""

from barnabas_raftlog.wire.schema import Bytes, Int16, Int32, Message, String, message

__all__ = ["OpenChallengeRequest", "OpenChallengeResponse"]


@message(api_key=25186, versions=range(1), flexible_since=0)
class OpenChallengeRequest(Message):
    """Nothing needs to be said."""


@message(api_key=25186, versions=range(1), flexible_since=0)
class OpenChallengeResponse(Message):
    """The nonce, and who has drawn it: all of that goes into the proof."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    cluster_id: String = ""
    node_id: Int32 = -1
    nonce: Bytes = b""
