"""Messages of versions that came with Kafka 4.4, which kio does not know, byte by byte as Kafka's schemas have them."""

from typing import Any

import pytest

from barnabas_clients.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_clients.protocol.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

SOFTWARE: dict[str, Any] = {"client_software_name": "x", "client_software_version": "1"}
REFUSALS = [
    DeletableGroupResult(group_id="g", error_code=134, error_message="no"),
    DeletableGroupResult(group_id="h", error_code=68),
]
CASES: list[tuple[Any, int, str]] = [
    (ApiVersionsRequest(**SOFTWARE, cluster_id="c", node_id=7), 4, "02 78 02 31 00"),
    (ApiVersionsRequest(**SOFTWARE, cluster_id="c", node_id=7), 5, "02 78 02 31 02 63 00000007 00"),
    (ApiVersionsRequest(**SOFTWARE), 5, "02 78 02 31 00 ffffffff 00"),
    (ApiVersionsResponse(error_code=129), 5, "0081 01 00000000 00"),
    (DeleteGroupsRequest(groups_names=("g",)), 3, "02 02 67 00"),
    (DeleteGroupsResponse(results=REFUSALS), 2, "00000000 03 02 67 0086 00 02 68 0044 00 00"),
    (DeleteGroupsResponse(results=REFUSALS), 3, "00000000 03 02 67 0086 03 6e6f 00 02 68 0044 00 00 00"),
]


@pytest.mark.parametrize(("message", "version", "expected"), CASES)
def test_bytes_are_those_of_the_schema(message: Any, version: int, expected: str) -> None:
    assert message.to_bytes(version) == bytes.fromhex(expected)
