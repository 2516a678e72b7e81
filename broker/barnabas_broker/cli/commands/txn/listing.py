"""Lists transactional ids: their producers, states and coordinators, of the brokers that answer."""

from collections.abc import Sequence

from barnabas_broker.cli.commands.administration.calls import complain_of_silence, usage
from barnabas_broker.cli.commands.administration.names import compiled, matching
from barnabas_broker.cli.errors import UsageError
from barnabas_broker.cli.near_names import did_you_mean
from barnabas_broker.cli.output import print_table, say_json_lines
from barnabas_broker.cli.times import duration_ms
from barnabas_clients import Admin
from barnabas_clients.admin.client import ReachableTransactions
from barnabas_clients.place_arguments import TRANSACTION_STATES, transaction_states

from .standing import SURVEY_TIMEOUT_S, ask

__all__ = ["list_"]


def list_(
    bootstrap: str,
    timeout_s: float,
    states: Sequence[str],
    producer_ids: Sequence[int],
    patterns: Sequence[str],
    longer_than: str | None,
    *,
    as_json: bool,
) -> int:
    """Print the ids that all conditions let pass."""
    wanted_states = _states_of(states)
    wanted = compiled(patterns)
    with usage("--longer-than"):
        open_longer_than_s = None if longer_than is None else duration_ms(longer_than) / 1000

    async def run(admin: Admin) -> ReachableTransactions:
        return await admin.reachable_transactions(
            states=wanted_states,
            producer_ids=producer_ids,
            open_longer_than_s=open_longer_than_s,
            timeout_s=min(timeout_s, SURVEY_TIMEOUT_S),
        )

    found = ask(bootstrap, timeout_s, run)
    complain_of_silence(found.silent)
    every = {row.transactional_id: row for row in found.transactions}
    rows = [every[name] for name in matching(every, wanted)]
    if as_json:
        say_json_lines(row._asdict() for row in rows)
    else:
        print_table(("transactional id", "producer", "state", "coordinator"), rows)
    return 0


def _states_of(words: Sequence[str]) -> list[str]:
    try:
        return transaction_states(words)
    except ValueError as error:
        known = {state.casefold() for state in TRANSACTION_STATES}
        near = "".join(did_you_mean(word, TRANSACTION_STATES) for word in words if word.casefold() not in known)
        raise UsageError(f"--state: {error}{near}") from error
