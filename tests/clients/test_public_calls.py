"""Every public call of `Consumer` and `Admin` copes with values of every kind.

The call that was given an odd value refuses it, with a `TypeError` or `ValueError` that names the value and the
possible ones, or it works. No value is lost later: no task ends with it, every request can be encoded, and the client
goes on working. One table has the sensible values of each parameter; a parameter that is missing there fails the test.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from clients.groups.storing_coordinator import StoringCoordinator
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_clients import Admin, ConfigResource, Consumer, CorruptRecordsError, NewTopic, ResetTo, TopicPartition
from barnabas_clients.admin.client import FeatureChange, GroupListing, NamedSnapshot
from barnabas_clients.admin.values import ConfigResourceType
from barnabas_clients.protocol import registry
from barnabas_raftlog.errors import BarnabasError

from .fake_broker import Answer, FakeBroker, Handler
from .fake_log import FakeLog, values_of
from .odd_values import Odd, odd_values, refused
from .virtual import run_virtually, serving_virtually

T0 = TopicPartition("t", 0)
PATIENCE_S = 200
SENSIBLE: dict[str, Any] = {
    "bootstrap": None,  # where the brokers are is known in the run
    "topics": ["t"],
    "pattern": "t.*",
    "server_pattern": "t.*",
    "group_protocol": "consumer",
    "group_remote_assignor": "uniform",
    "group_id": "g",
    "group_instance_id": "i",
    "client_id": "c",
    "client_rack": "r",
    "auto_offset_reset": "earliest",
    "auto_commit": True,
    "auto_commit_interval_s": 5.0,
    "assignors": ["range"],
    "session_timeout_s": 45.0,
    "heartbeat_interval_s": 3.0,
    "max_poll_interval_s": 300.0,
    "read_committed": False,
    "fetch_max_wait_s": 0.5,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 1 << 20,
    "partition_fetch_bytes": 1 << 20,
    "buffer_bytes": 1 << 25,
    "metadata_max_age_s": 300.0,
    "request_timeout_s": 30.0,
    "timeout_s": 5.0,
    "outage_timeout_s": 30.0,
    "topic": "t",
    **dict.fromkeys(("on_assigned", "on_revoked", "on_lost")),
    "max_records": 5,
    "partitions": [T0],
    "partition": T0,
    "offsets": {T0: 1},
    "offset": 1,
    "timestamp_ms": 1,
    "timestamps_ms": {T0: 1},
    "resources": [ConfigResource.topic("t")],
    "resource": ConfigResource.topic("t"),
    "configs": {"retention.ms": "5"},
    "validate_only": False,
    "name": "t",
    "replication_factor": 1,
    "names": ["t"],
    "include_internal": False,
    "count": 5,
    "targets": {T0: [1]},
    "before": {T0: 1},
    "states": ["Stable"],
    "group_ids": ["g"],
    "groups": [GroupListing("g", "consumer", "Stable", "classic", 1)],
    "with_lags": True,
    "include_documentation": True,
    "broker_ids": [1],
    "node_id": 1,
    "target": ResetTo.latest(),
    "dry_run": True,
    "stable": False,
    "error": CorruptRecordsError(T0, 0, 1, "r"),
    "best_effort": True,
    "unclean": True,
    "types": [ConfigResourceType.TOPIC],
    "levels": {"transaction.version": 2},
    "change": FeatureChange.UPGRADE,
    "snapshot": NamedSnapshot("n", bytes(16), 0, False, 0, 0, ()),
    "snapshot_id": bytes(16),
    "transactional_id": "x",
    "transactional_ids": ["x"],
    "producer_ids": [1],
    "open_longer_than_s": 900.0,
    "start_offset": 1,
}
OF_ONE_CALL: dict[str, Any] = {
    "Admin.reachable_transactions(states)": ["Ongoing"],
    "Admin.create_topic(partitions)": 3,
    "Admin.create_topics(topics)": [NewTopic("n")],
    "Admin.list_groups(types)": ["classic"],
    "Admin.reachable_groups(types)": ["classic"],
    "Admin.list_offsets(partitions)": {T0: -1},
    # Without a limit of its own it might wait for longer than anybody wants to.
    "Consumer.get_many(timeout_s)": 0.1,
}
LATER = {"Admin.reset_group_offsets", "Consumer.commit", "Consumer.offsets_to_send"}
"""Their refusals may depend on the group, on its stored offsets, and on the settings."""
OF_CONSUMER_PROTOCOL = {"server_pattern", "group_remote_assignor"}
NO_CALLS = {"assignment", "subscription", "paused", "metrics", "trouble"}


class Place(NamedTuple):
    """One parameter of one call; the constructor is the call "__init__"."""

    client: type[Consumer] | type[Admin]
    call: str
    parameter: str

    @property
    def key(self) -> str:
        return f"{self.client.__name__}.{self.call}"

    def __repr__(self) -> str:
        return f"{self.key}({self.parameter})"


def signature(client: Any, call: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(getattr(client, call)).parameters
    return {name: parameter for name, parameter in parameters.items() if name != "self"}


def calls_of(client: Any) -> list[str]:
    found = [name for name in dir(client) if not name.startswith("_") and name not in NO_CALLS]
    return ["__init__", *found]


PLACES = [
    Place(client, call, parameter)
    for client in (Consumer, Admin)
    for call in calls_of(client)
    for parameter in signature(client, call)
]


class AnyBroker(FakeBroker):
    """Answers whatever nobody has prepared with what is empty; so every request is encoded and understood."""

    def __init__(self) -> None:
        super().__init__()
        for api in registry.APIS.values():
            self.answers.setdefault(api.request, self.empty(api.response))

    def empty(self, response: type[registry.Message]) -> Handler:
        async def answer(_: object) -> Answer:
            return response()

        return answer


def sensible(place: Place, bootstrap: str) -> Any:
    if place.parameter == "bootstrap":
        return bootstrap
    found = OF_ONE_CALL.get(repr(place), SENSIBLE[place.parameter])
    is_one_of_many = signature(place.client, place.call)[place.parameter].kind is inspect.Parameter.VAR_POSITIONAL
    return found[0] if is_one_of_many else found


def prepared(place: Place, bootstrap: str, value: Any) -> Callable[[Any], Any]:
    """Return what makes the call on a client, or makes the client, with one odd value and what else it needs."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    needed = {"timeout_s", "group_id"} if place.call == "__init__" else {"timeout_s"}
    if place.call in {"__init__", "subscribe"} and place.parameter not in {"pattern", "server_pattern"}:
        needed.add("topics")
    if place.call == "__init__" and place.parameter in OF_CONSUMER_PROTOCOL:
        needed.add("group_protocol")
    for name, parameter in signature(place.client, place.call).items():
        one = value if name == place.parameter else sensible(place._replace(parameter=name), bootstrap)
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.append(one)
        elif name == place.parameter or name in needed or parameter.default is inspect.Parameter.empty:
            named[name] = one
    first = list(signature(place.client, place.call))[:1]
    if positional and first != ["partitions"]:
        positional.insert(0, named.pop(*first))
    if place.call == "__init__":
        return lambda _: place.client(**named)
    return lambda client: getattr(client, place.call)(*positional, **named)


async def make(place: Place, bootstrap: str) -> Any:
    """Return an open client of which the call makes sense; None where the call is the one that makes it."""
    if place.call == "__init__":
        return None
    if place.client is Admin:
        return await Admin(bootstrap, timeout_s=5).__aenter__()
    by_topic = place.call not in {"assign", "subscribe"}
    topics = ["t"] if by_topic else ()
    if place.parameter in OF_CONSUMER_PROTOCOL:
        client = Consumer(bootstrap, topics=topics, group_id="g", group_protocol="consumer")
    else:
        client = Consumer(bootstrap, topics=topics, auto_offset_reset="earliest")
    await client.__aenter__()
    if place.call == "assign":
        await client.assign([T0])
    elif by_topic:
        await client.position(T0)
    return client


async def finish(place: Place, client: Any, made: Any) -> Any:
    """Finish the call that was begun, and return the client."""
    if place.call == "__init__":
        return await made.__aenter__()
    if place.call == "batches":
        await anext(made)
    elif inspect.isawaitable(made):
        await made
    return client


@asynccontextmanager
async def patience() -> AsyncIterator[None]:
    """Wait for so long and no longer: some sensible values say "wait for a day"."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield
    except TimeoutError as error:
        if not str(error):
            raise TimeoutError("it goes on for longer than this test") from None
        raise


async def use(client: Any) -> None:
    """See that a client works."""
    if isinstance(client, Admin):
        assert await client.list_topics()
    else:
        await client.get_many(timeout_s=1)


async def attempt(place: Place, value: Any) -> list[BaseException]:
    """Make a call, see that a client which was not refused goes on working, and return the refusal if there was one."""
    broker = AnyBroker()
    log = FakeLog(broker, partitions=2)
    log.append(values_of(3))
    StoringCoordinator(broker, partitions=2)
    now = asyncio.get_running_loop().time
    async with serving_virtually(broker):
        bootstrap = f"127.0.0.1:{broker.port}"
        call = prepared(place, bootstrap, value)
        client = await make(place, bootstrap)
        began_s = now()
        try:
            with refused(BarnabasError, TimeoutError) as refusals:
                async with patience():
                    made = call(client)
                    client = made if place.call == "__init__" else client
                    await finish(place, client, made)
            for refusal in refusals:
                is_late = now() > began_s and not isinstance(refusal, BarnabasError | TimeoutError)
                assert place.key in LATER or not is_late, f"{refusal!r} came later than the call"
            if client is not None and place.call not in {"close", "stop"}:
                # An application's callback raises what it likes, and is not what is asked about here.
                also = (ZeroDivisionError,) if place.parameter.startswith("on_") else ()
                with refused(BarnabasError, TimeoutError, *also) as complaints:
                    async with patience():
                        await use(client)
                for complaint in complaints:
                    is_right = isinstance(complaint, BarnabasError | TimeoutError) or "nothing to read" in str(
                        complaint
                    )
                    assert is_right or place.parameter.startswith("on_"), complaint
        finally:
            if client is not None:
                await client.close(*([1] if isinstance(client, Consumer) else []))
    return refusals


def test_every_parameter_has_a_sensible_value() -> None:
    for place in PLACES:
        assert repr(place) in OF_ONE_CALL or place.parameter in SENSIBLE, place


@pytest.mark.parametrize("place", PLACES, ids=repr)
def test_a_sensible_value_is_not_refused(place: Place) -> None:
    async def main() -> None:
        refusals = await attempt(place, sensible(place, "127.0.0.1:9001"))
        # A broker that has little to say is to blame for the rest.
        assert not any(type(refusal) in {TypeError, ValueError} for refusal in refusals) or place.key in LATER

    run_virtually(main())


def of(client: Any, call: str, parameter: str, value: Any) -> tuple[Place, Odd]:
    return Place(client, call, parameter), Odd(ascii(value), lambda: value)


@settings(max_examples=150, deadline=None)
@given(st.tuples(st.sampled_from(PLACES), odd_values()))
@example(of(Admin, "delete_topics", "names", "ord"))
@example(of(Consumer, "get_many", "max_records", 0))
@example(of(Consumer, "__init__", "on_assigned", len))
def test_an_odd_value_is_refused_by_the_call_or_works(case: tuple[Place, Odd]) -> None:
    async def main() -> None:
        place, odd = case
        await attempt(place, odd.make())

    run_virtually(main())


@pytest.mark.parametrize("value", ["ord", b"ord"])
@pytest.mark.parametrize("place", [place for place in PLACES if isinstance(sensible(place, ""), list)], ids=repr)
def test_one_name_is_not_a_list_of_names(place: Place, value: Any) -> None:
    async def main() -> None:
        (refusal,) = await attempt(place, value)
        assert type(refusal) is TypeError, refusal

    run_virtually(main())
