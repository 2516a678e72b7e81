"""Administrators of a run: they create and delete topics, move partitions, choose observers.

All of it goes through Kafka's APIs, asked of any broker, again and again until there is an answer. The outcome of a
request without an answer is found out by asking again, as tools do.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from barnabas_clients.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_clients.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_clients.protocol.list_partition_reassignments import ListPartitionReassignmentsRequest
from sim.cluster.judges.history import Partition

from .client import Trouble, WireClient

__all__ = ["change_observers", "come_and_go", "create_topic", "demand_copies_of_offsets", "move_partitions"]

TIMEOUT_MS = 3_000
TOPIC_RESOURCE = 2
SET = 0
OFFSETS_TOPIC = "__consumer_offsets"
CANCELLED = 0.2  # of all moves, if they are still under way then
LOOKS = 12  # how often an administrator asks whether a move has ended before the next one begins


async def create_topic(client: WireClient, name: str, partitions: int, factor: int, configs: dict[str, str]) -> None:
    """Ask until the topic exists."""
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in sorted(configs.items())]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)
    while True:
        try:
            answer = await client.ask_anybody(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
        except Trouble:
            await client.pause(50, 300)
            continue
        code = answer.topics[0].error_code
        if code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            client.world.note(client.name, f"created {name}")
            return
        # Too few brokers have registered yet.
        is_early = code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert is_early or code in RETRIABLE, f"{ErrorCode(code).name}: {answer.topics[0].error_message}"
        await client.pause(50, 300)


async def come_and_go(client: WireClient, factor: int, goes_on: Callable[[], bool]) -> None:
    """Create topics that nobody uses, and delete them again."""
    number = 0
    while goes_on():
        name = f"passing-{number}"
        number = number + 1
        await create_topic(client, name, client.rng.randrange(1, 4), factor, {})
        await client.pause(10, 600)
        while True:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)
            try:
                code = (await client.ask_anybody(request)).responses[0].error_code
            except Trouble:
                await client.pause(50, 300)
                continue
            if code in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
                break
            assert code in RETRIABLE, f"deletion of {name}: {ErrorCode(code).name}"
            await client.pause(50, 300)
        client.world.note(client.name, f"deleted {name}")
        client.world.counts["topics deleted"] += 1
        await client.pause(10, 600)


async def move_partitions(
    client: WireClient, partitions: Sequence[Partition], least: int, goes_on: Callable[[], bool]
) -> None:
    """Send partitions to other brokers, never to fewer than `least` of them; call some moves off."""
    nodes = sorted(client.brokers)
    while goes_on():
        await client.pause(100, 1_500)
        partition = client.rng.choice(partitions)
        count = client.rng.randrange(least, min(len(nodes), least + 2) + 1)
        target = client.rng.sample(nodes, count)
        if not await _reassign(client, partition, target):
            continue
        client.world.counts["moves begun"] += 1
        for _ in range(client.rng.randrange(1, LOOKS)):
            await client.pause(50, 400)
            if not await _is_moving(client):
                break
        else:
            if client.rng.random() < CANCELLED and await _reassign(client, partition, None):
                client.world.counts["moves called off"] += 1


async def _reassign(client: WireClient, partition: Partition, target: list[int] | None) -> bool:
    """Ask once; return whether the controller has taken it."""
    topic, index = partition
    wanted = ReassignablePartition(partition_index=index, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=[wanted])]
    )
    try:
        answer = await client.ask_anybody(request)
    except Trouble as trouble:
        client.world.note(client.name, f"move of {index} to {target}: {trouble}")
        return False
    code = answer.error_code or answer.responses[0].partitions[0].error_code
    client.world.note(client.name, f"move of {index} to {target}: {ErrorCode(code).name}")
    # A broker that has never registered cannot be a target; a move that has ended cannot be called off.
    is_early = code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    is_late = code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS and target is None
    assert code == ErrorCode.NONE or is_early or is_late or code in RETRIABLE, ErrorCode(code).name
    return bool(code == ErrorCode.NONE)


async def _is_moving(client: WireClient) -> bool:
    """Tell whether any move is under way, as far as the brokers know; without an answer, yes."""
    try:
        answer = await client.ask_anybody(ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS))
    except Trouble:
        return True
    return answer.error_code != ErrorCode.NONE or bool(answer.topics)


async def set_config(client: WireClient, topic: str, name: str, value: str, early: ErrorCode) -> bool:
    """Ask once to configure a topic; return whether it is done. `early`: the error while something is not there yet.

    Raises:
        Trouble: no answer.
    """
    setting = IncrementalAlterableConfig(name=name, config_operation=SET, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[setting])
    answer = await client.ask_anybody(IncrementalAlterConfigsRequest(resources=[resource]))
    code = ErrorCode(answer.responses[0].error_code)
    text = answer.responses[0].error_message
    client.world.note(client.name, f"{name} of {topic} {value}: {code.name}")
    assert code in {ErrorCode.NONE, early} or code in RETRIABLE, f"{code.name}: {text}"
    return code is ErrorCode.NONE


async def demand_copies_of_offsets(client: WireClient, count: int, goes_on: Callable[[], bool]) -> None:
    """Let a group's commits be answered only when so many replicas have them, as soon as there is a topic for them."""
    while goes_on():
        await client.pause(200, 1_500)
        with suppress(Trouble):
            early = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if await set_config(client, OFFSETS_TOPIC, "min.insync.replicas", str(count), early):
                client.world.counts["copies of offsets demanded"] += 1
                return


async def change_observers(client: WireClient, topic: str, goes_on: Callable[[], bool]) -> None:
    """Let one or two brokers observe the topic, then others, then nobody."""
    nodes = sorted(client.brokers)
    while goes_on():
        await client.pause(200, 1_500)
        observers = sorted(client.rng.sample(nodes, client.rng.randrange(3)))
        value = ",".join(map(str, observers))
        try:
            # INVALID_CONFIG: one of them has never registered.
            is_done = await set_config(client, topic, "replica.observers", value, ErrorCode.INVALID_CONFIG)
        except Trouble as trouble:
            client.world.note(client.name, f"observers {observers}: {trouble}")
            continue
        client.world.counts["observers changed"] += is_done
