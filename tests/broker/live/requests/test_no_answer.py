"""Produce with acks=0 has its place in the order of a connection's requests, and no answer there."""

from broker.wire_client import Wire, batch, offsets_of, produce_request

EXCHANGES_MAX = 100  # of a connection, unanswered


def test_w1_answers_behind_what_is_not_answered_do_not_wait_for_it(wire: Wire, topic: str) -> None:
    """Neither those before it, which come later than it, nor any number of the same."""
    answered = produce_request(topic, batch())
    silent = produce_request(topic, batch(), acks=0)
    asked = [answered, *[silent] * 3, answered, *[silent] * (EXCHANGES_MAX + 50), answered]
    for request in asked:
        wire.send(request, 9)
    found = [wire.receive(answered, 9).responses[0].partition_responses[0].base_offset for _ in range(3)]
    assert found == [number for number, request in enumerate(asked) if request is answered]
    assert offsets_of(wire.fetch(topic, 0).records) == list(range(len(asked)))
