"""Decoding and encoding in steps gives the same result, within bounds.

Other tasks get their turn between the steps.
"""

from itertools import pairwise
from typing import Any

import pytest
from steps import outcome

from barnabas_clients.protocol.describe_events import DescribeEventsRequest
from barnabas_clients.protocol.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_clients.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_raftlog.errors import MalformedMessageError, TooManyElementsError
from barnabas_raftlog.wire.decoder import STEP_BYTES
from barnabas_raftlog.wire.encoder import STEP_ELEMENTS
from barnabas_raftlog.wire.primitives import BLOB_BYTES_MAX, uvarint
from barnabas_raftlog.wire.schema import Buffer, Message

from .samples import EVERY_VERSION, filled


def decoded(data: Buffer, message: type[Message], version: int, elements_max: int = 1 << 30) -> tuple[Any, int]:
    return outcome(message.decode_in_steps(data, version, elements_max=elements_max))


@pytest.mark.parametrize(("message", "version"), EVERY_VERSION, ids=str)
def test_every_message_is_the_same_in_steps(message: type[Message], version: int) -> None:
    for seed in range(4):
        sample = filled(message, version, seed)
        whole = sample.to_bytes(version)
        assert b"".join(outcome(sample.encode_in_steps(version))[0]) == whole
        assert decoded(whole, message, version)[0] == message.decode(whole, version)


def metadata_request(count: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{number}") for number in range(count)])


@pytest.mark.parametrize("version", [4, 12])
def test_somebody_else_has_a_turn_after_a_bounded_piece_of_the_input(version: int) -> None:
    whole = metadata_request(20_000).to_bytes(version)
    request, yields = decoded(whole, MetadataRequest, version)
    assert request == metadata_request(20_000)
    assert len(whole) // (STEP_BYTES + 100) <= yields <= len(whole) // STEP_BYTES


def test_and_inside_of_a_single_nested_array() -> None:
    rows = [PartitionProduceData(index=index, records=None) for index in range(50_000)]
    whole = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=rows)]).to_bytes(8)
    request, yields = decoded(whole, ProduceRequest, 8)
    assert len(request.topic_data[0].partition_data) == 50_000
    assert yields >= len(whole) // (STEP_BYTES + 100)


def test_and_behind_each_value_that_takes_long_to_copy() -> None:
    whole = DescribeEventsRequest(nonce=bytes(STEP_BYTES), proof=bytes(STEP_BYTES)).to_bytes(0)
    assert decoded(whole, DescribeEventsRequest, 0)[1] == 2


@pytest.mark.parametrize("version", [5, 9])
def test_a_value_that_would_take_too_long_to_copy_is_refused(version: int) -> None:
    def whole(count: int) -> bytes:
        return JoinGroupRequest(protocols=[JoinGroupRequestProtocol(metadata=bytes(count))]).to_bytes(version)

    assert decoded(whole(BLOB_BYTES_MAX), JoinGroupRequest, version)[0].protocols[0].metadata == bytes(BLOB_BYTES_MAX)
    with pytest.raises(MalformedMessageError, match=rf"metadata: length {BLOB_BYTES_MAX + 1}"):
        decoded(whole(BLOB_BYTES_MAX + 1), JoinGroupRequest, version)


def test_elements_are_counted_over_all_arrays_and_refused_before_they_are_made() -> None:
    topics = [OffsetFetchRequestTopic(name=f"t{k}", partition_indexes=tuple(range(100))) for k in range(10)]
    whole = OffsetFetchRequest(group_id="g", topics=topics).to_bytes(7)
    assert decoded(whole, OffsetFetchRequest, 7, elements_max=1_010)[0].topics == topics
    with pytest.raises(TooManyElementsError, match=r"OffsetFetchRequest v7: .*partition_indexes: 100 elements"):
        decoded(whole, OffsetFetchRequest, 7, elements_max=1_009)
    with pytest.raises(TooManyElementsError, match=r"topics: 10 elements"):
        decoded(whole, OffsetFetchRequest, 7, elements_max=9)


@pytest.mark.parametrize("version", [5, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 200])
def test_numbers_are_elements_however_few_an_array_has(version: int, count: int) -> None:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=tuple(range(count)))] * 20
    whole = OffsetFetchRequest(group_id="g", topics=topics).to_bytes(version)
    assert decoded(whole, OffsetFetchRequest, version, elements_max=20 + 20 * count)[0].topics == topics
    with pytest.raises(TooManyElementsError):
        decoded(whole, OffsetFetchRequest, version, elements_max=19 + 20 * count)


@pytest.mark.parametrize("in_steps", [False, True], ids=["in one go", "in steps"])
def test_a_text_is_as_long_in_flexible_versions_as_in_the_others_and_no_longer(in_steps: bool) -> None:
    def decode(data: bytes) -> object:
        return decoded(data, MetadataRequest, 9)[0] if in_steps else MetadataRequest.decode(data, 9)

    longest = MetadataRequest(topics=[MetadataRequestTopic(name="a" * 32_767)])
    whole = longest.to_bytes(9)
    assert decode(whole) == longest
    assert whole.count(uvarint(32_768)) == 1
    longer = whole.replace(uvarint(32_768), uvarint(32_769)).replace(b"aaa", b"aaaa", 1)
    with pytest.raises(MalformedMessageError, match="length 32768"):
        decode(longer)


@pytest.mark.parametrize("in_steps", [False, True], ids=["in one go", "in steps"])
def test_a_text_that_nobody_could_read_is_not_written(in_steps: bool) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a" * 32_768)])
    with pytest.raises(ValueError, match="MetadataRequest v9 cannot carry a value: a text of 32768 bytes"):
        outcome(request.encode_in_steps(9)) if in_steps else request.encode(9)


@pytest.mark.parametrize("in_steps", [False, True], ids=["in one go", "in steps"])
def test_a_struct_with_thousands_of_tagged_fields_is_refused(in_steps: bool) -> None:
    whole = bytearray(MetadataRequest(topics=None).to_bytes(9))
    assert whole.pop() == 0
    for count, is_right in ((1_000, True), (1_001, False)):
        tags = bytes((count & 0x7F | 0x80, count >> 7)) + b"\x0f\x00" * count

        def decode(data: bytes = bytes(whole + tags)) -> object:
            return decoded(data, MetadataRequest, 9)[0] if in_steps else MetadataRequest.decode(data, 9)

        if is_right:
            assert decode() == MetadataRequest(topics=None)
        else:
            with pytest.raises(MalformedMessageError, match="tagged fields: length 1001"):
                decode()


def test_an_answer_with_many_rows_is_encoded_in_steps_and_its_large_blobs_are_not_copied() -> None:
    blob = bytes(100_000)
    members = [DescribedGroupMember(member_id=f"m{k}", member_metadata=blob) for k in range(STEP_ELEMENTS * 3 + 1)]
    response = DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", members=members)])
    buffers, yields = outcome(response.encode_in_steps(5))
    assert yields == 3
    assert sum(buffer is blob for buffer in buffers) == len(members)
    assert b"".join(buffers) == response.to_bytes(5)


def test_what_is_joined_between_two_turns_is_small() -> None:
    response = MetadataResponse.decode(filled(MetadataResponse, 12).to_bytes(12), 12)
    response.topics = response.topics[:1] * 5_000
    buffers, yields = outcome(response.encode_in_steps(12))
    assert yields >= 5_000 // STEP_ELEMENTS
    assert all(first and second for first, second in pairwise(buffers))
    assert max(map(len, buffers)) < 1 << 20
    assert b"".join(buffers) == response.to_bytes(12)


def test_long_texts_are_joined_a_megabyte_at_a_time() -> None:
    names = [chr(ord("a") + k % 26) * 30_000 for k in range(400)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    buffers, yields = outcome(request.encode_in_steps(9))
    assert yields >= 10
    assert max(map(len, buffers)) < 3 << 19
    assert b"".join(buffers) == request.to_bytes(9)


def test_a_value_that_does_not_fit_is_named_as_in_one_go() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 40_000)])
    with pytest.raises(ValueError, match="MetadataRequest v4 cannot carry a value"):
        outcome(request.encode_in_steps(4))


def test_malformed_bytes_are_refused_in_the_same_words() -> None:
    whole = metadata_request(3).to_bytes(4)
    for damaged in (whole[:-1], whole + b"\0", b"\x7f" + whole[1:]):
        with pytest.raises(MalformedMessageError) as in_one_go:
            MetadataRequest.decode(damaged, 4)
        with pytest.raises(MalformedMessageError) as in_steps:
            decoded(damaged, MetadataRequest, 4)
        assert str(in_one_go.value) == str(in_steps.value)
