"""Has partitions led by their preferred replica."""

from collections.abc import Sequence

from barnabas_broker.cli.commands.administration.calls import administer
from barnabas_broker.cli.commands.administration.names import check_partitions, topics_named
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import complain, say, say_json
from barnabas_broker.cli.wording import in_words
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.protocol.errors import ErrorCode, KafkaError

__all__ = ["elect"]

Fates = dict[TopicPartition, KafkaError | None]


def elect(bootstrap: str, names: Sequence[str], partitions: Sequence[int], timeout_s: float, *, as_json: bool) -> int:
    """Elect the preferred leaders of some topics, or of all."""
    check_topic_names(names)
    if partitions and not names:
        raise UsageError("--partition is of a topic: name one")

    async def run(admin: Admin) -> Fates:
        if not names:
            return await admin.elect_leaders()
        topics = await topics_named(admin, names)
        for topic in topics:
            check_partitions(topic, partitions)
        wanted = [
            TopicPartition(topic.name, number)
            for topic in topics
            for number in sorted(topic.partitions)
            if not partitions or number in partitions
        ]
        return await admin.elect_leaders(wanted)

    fates = administer(bootstrap, timeout_s, run)
    moved = [key for key, error in sorted(fates.items()) if error is None]
    refused = [
        error
        for _, error in sorted(fates.items())
        if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED
    ]
    if as_json:
        rows = [{"topic": key.topic, "partition": key.partition} for key in moved]
        say_json({"moved": rows, "refused": [in_words(error) for error in refused]})
    else:
        for key in moved:
            say(f"{key} is led by its first replica")
        if not moved and not refused:
            say("every partition is led by its first replica already")
        for error in refused:
            complain(in_words(error))
    return CommandError.status if refused else 0
