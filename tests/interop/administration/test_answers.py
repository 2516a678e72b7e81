"""Apache Kafka answers each question of administrators as the list says; what Barnabas answers is tested without it."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from bench import systems
from broker.live.administration.admin_questions import QUESTIONS, TOPIC, Question, Surroundings, told
from broker.live.administration.topic_questions import TOPIC_QUESTIONS, TopicQuestion, codes
from broker.wire_client import Wire
from confluent_kafka.admin import AdminClient
from interop.conftest import wait_for_leaders

from barnabas_clients.protocol.describe_log_dirs import DescribeLogDirsRequest

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka(kafka_alone: str) -> Iterator[Wire]:
    host, port = kafka_alone.rsplit(":", 1)
    with closing(Wire(host, int(port))) as wire:
        wire.create(TOPIC)
        wait_for_leaders(AdminClient({"bootstrap.servers": kafka_alone}), TOPIC, 1)
        yield wire


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_kafka_answers_as_the_list_says(kafka: Wire, question: Question) -> None:
    log_dir = kafka.ask(DescribeLogDirsRequest(), 4).results[0].log_dir
    here = Surroundings(log_dir, systems.KAFKA_CLUSTER_ID)
    expected = question.ours if question.kafka is None else question.kafka
    for version in question.versions:
        assert told(kafka, question.make(here), version) == expected, version


@pytest.mark.parametrize("question", TOPIC_QUESTIONS, ids=lambda question: question.name)
def test_kafka_checks_topics_and_partitions_as_the_list_says(kafka: Wire, question: TopicQuestion) -> None:
    expected = question.codes if question.kafka is None else question.kafka
    for version in question.versions:
        assert codes(kafka, question.request, version) == expected, version
