"""The page about the protocol shows the tables of APIs. `UPDATE_PAGES=1 pytest` of this file writes them anew."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.answers.left_out import LEFT_OUT

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.server.dispatch import ROUTES
from barnabas_clients.protocol.registry import APIS

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def with_settings(settings: dict[str, str | int | float]) -> BrokerConfig:
    required: dict[str, str | int | float] = {
        "cluster.id": "c",
        "node.id": 1,
        "cluster.nodes": "1@127.0.0.1:1",
        "log.dir": "d",
    }
    return BrokerConfig.from_settings(required | settings)


SHUT = with_settings({})
GATES: dict[str, str | bool] = {
    "unstable.api.versions.enable": True,
    "transaction.two.phase.commit.enable": True,
    "client.metrics.otlp.endpoint": "http://127.0.0.1:4318/v1/metrics",
}


def shown(versions: range) -> str:
    if not versions:
        return ""
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


def condition(key: int) -> str:
    """Return which setting offers more of an API, and what of it; empty if none does."""
    for gate, value in GATES.items():
        opened = ROUTES[key].offered(with_settings({gate: value}))
        if opened != ROUTES[key].offered(SHUT):
            return f"{shown(opened)} with `{gate}`"
    return ""


def rows() -> Iterator[str]:
    for key, api in sorted(APIS.items()):
        offered = condition_ = ""
        if (route := ROUTES.get(key)) is not None:
            offered, condition_ = shown(route.offered(SHUT)), condition(key)
            if route.served_from > route.advertised.start:
                condition_ = f"served from {route.served_from} on; see [traps](#traps)"
        yield f"| {key} | {api.name} | {shown(api.versions)} | {offered} | {condition_} |\n"


def table() -> str:
    return f"| key | API | declared | offered | |\n|---|---|---|---|---|\n{''.join(rows())}"


def table_of_what_is_left_out() -> str:
    """Return the APIs of Kafka's that are not offered, those with one reason in one row."""
    by_reason: dict[str, list[str]] = {}
    for row in LEFT_OUT:
        since = f" from version {row.since} on" if row.since else ""
        by_reason.setdefault(row.reason, []).append(f"{row.name} ({row.key}){since}")
    lines = (f"| {', '.join(names)} | {reason} |\n" for reason, names in by_reason.items())
    return f"| left out | because |\n|---|---|\n{''.join(lines)}"


@pytest.mark.parametrize(
    ("what", "shown"), [("APIs", table()), ("what is left out", table_of_what_is_left_out())], ids=("APIs", "left out")
)
def test_the_page_shows_the_tables(what: str, shown: str) -> None:
    begin, end = (f"<!-- the table of {what} {does} -->\n" for does in ("begins", "ends"))
    before, begun, rest = PAGE.read_text().partition(begin)
    found, ended, after = rest.partition(end)
    assert begun, "the page has the mark"
    assert ended, "the page has the mark"
    if os.environ.get("UPDATE_PAGES"):
        PAGE.write_text(f"{before}{begin}\n{shown}\n{end}{after}")
    else:
        assert found.strip() == shown.strip()


def test_the_table_tells_what_settings_open() -> None:
    assert condition(22) == "0-6 with `transaction.two.phase.commit.enable`"
    assert condition(1) == ""


def test_a_broker_offers_nothing_that_is_not_declared() -> None:
    assert ROUTES.keys() <= APIS.keys()
    for key, route in ROUTES.items():
        assert set(route.advertised[route.served_from - route.advertised.start :]) <= set(APIS[key].versions)
