"""ApiVersions, API key 18: the APIs and versions that a broker speaks. Pure.

It is the first request on every connection. It has two exceptions to all rules, because the client does not know the
broker yet (KIP-511). The response always has header version 0, even if its body is flexible. And a broker that does not
know the requested version answers with a *version 0 body* that carries UNSUPPORTED_VERSION and the ranges it has.
`registry.py` does both.

Versions: 1 throttle time; 3 flexible, client software, features; 4 lets `min_version` of a feature be 0; 5 says which
cluster and which broker the client means, and may answer REBOOTSTRAP_REQUIRED (KIP-1242).
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Int16, Int32, Int64, Message, String, Struct, field, message, wire

__all__ = [
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "FinalizedFeatureKey",
    "SupportedFeatureKey",
]


@message(api_key=18, versions=range(6), flexible_since=3)
class ApiVersionsRequest(Message):
    """Sent in the client's newest version, before it knows the broker's. It names cluster and node, or neither."""

    client_software_name: Annotated[String, wire(since=3)] = ""
    client_software_version: Annotated[String, wire(since=3)] = ""
    cluster_id: Annotated[String | None, wire(since=5)] = None
    node_id: Annotated[Int32, wire(since=5)] = -1


class ApiVersion(Struct):
    """The versions of one API that the broker speaks, both ends inclusive."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    """The levels of a cluster feature that this broker could run with."""

    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    """The level of a cluster feature in force, valid when `finalized_features_epoch` is 0 or more."""

    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


@message(api_key=18, versions=range(6), flexible_since=3)
class ApiVersionsResponse(Message):
    """`transaction.version` 2 among the finalized features turns KIP-890 on in clients."""

    error_code: Int16 = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: Annotated[Int32, wire(since=1)] = 0
    supported_features: Annotated[list[SupportedFeatureKey], wire(since=3, tag=0)] = field(default_factory=list)
    finalized_features_epoch: Annotated[Int64, wire(since=3, tag=1)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], wire(since=3, tag=2)] = field(default_factory=list)
    zk_migration_ready: Annotated[Bool, wire(since=3, tag=3)] = False
