"""Tells what Jepsen found in Kafka's first protocol of transactions from everything else.

An EndTxn that was delayed in the network may end the *next* transaction there, since both have one epoch. So the log of
the coordinators is watched. A transaction is *struck* if its outcome was decided under its own epoch (a timeout and a
successor raise it), if that is not what its client has asked for, and if such a request came late in it. A finding of
the history's checker is allowed if it is about a transaction that was struck, and one that the outcome explains: a
commit shows what is open or aborted later, an abort loses what is committed later, and both tear.

Everything else is a violation, with `transaction.version` 2 all of it. There it is one already that a transaction is
committed whose client has not asked for that.
"""

import re
from collections import defaultdict
from itertools import pairwise

from barnabas_broker.coordinators.transactions.state_machine.messages import SavedTransaction
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.history import Event, Violation
from barnabas_broker.history import events as e
from barnabas_broker.history.violations import Rule
from sim.cluster.world import World

__all__ = ["Struck"]

EXPLAINED = {
    True: frozenset({Rule.OPEN_READ, Rule.ABORTED_READ, Rule.TORN}),
    False: frozenset({Rule.LOST, Rule.TORN}),
}
"""The findings that a commit explains for which nobody has asked, and those that an abort does."""
_WORDS = re.compile(r"[\s,;:]+")


class Struck:
    """Watches one run. `level`: of `transaction.version`. Transactions are named `client.life/number`."""

    def __init__(self, world: World, level: int) -> None:
        self.level = level
        self._world = world
        self._present = dict[str, str]()  # the transaction that is open, by its client
        self._asked = dict[str, set[bool]]()  # by transaction
        self._late = defaultdict[str, set[bool]](set)  # what is asked late, by client
        self._ongoing = dict[str, Producer]()  # by client, if the last record of its id says so
        self._of_record = dict[tuple[str, str, str], str]()  # by partition, producer and number
        self.struck = dict[str, bool]()

    def feed(self, event: Event) -> None:
        """Hear what a client tells."""
        match event:
            case e.Begun(transaction=name):
                self._present[_client_of(name)] = name
                self._asked[name] = set()
            case e.Ending(transaction=name, commit=is_commit):
                self._asked[name].add(is_commit)
            case e.Ended(transaction=name):
                self._present.pop(_client_of(name), None)
                self._asked.pop(name, None)
            case e.Invoked(transaction=str(name)) if self.level == 1:
                self._of_record[event.partition, event.producer, str(event.sequence)] = name
            case _:
                pass

    def on_late(self, client: str, *, is_commit: bool) -> None:
        """Hear that such a request of a transaction before is sent now, and may come at any time."""
        self._late[client].add(is_commit)

    def on_said(self, transactional_id: str, saved: SavedTransaction | None) -> None:
        """Hear of a record of the coordinators' log that is appended for the first time."""
        client = transactional_id.removeprefix("id-")
        ongoing = self._ongoing.pop(client, None)
        if saved is not None and saved.state is TransactionState.ONGOING:
            self._ongoing[client] = saved.producer
        if saved is None or ongoing is None or not saved.state.is_prepared:
            return
        name = self._present.get(client, "")
        is_commit = saved.state is TransactionState.PREPARE_COMMIT
        if not name or is_commit in self._asked[name]:
            return
        if self.level == 1 and saved.producer == ongoing and is_commit in self._late[client]:
            self.struck[name] = is_commit
            self._world.counts["next transaction ended"] += 1
            self._world.note("world", f"{name} is struck by a late {'commit' if is_commit else 'abort'}")
        elif is_commit:
            self._world.violate(f"{name} is committed, and nobody has asked for that")

    def allows(self, violation: Violation) -> bool:
        """Say whether this is the pattern that Jepsen has found."""
        words = [violation.subject, *_WORDS.split(violation.text)]
        names = {self._of_record.get((violation.subject, *pair), "") for pair in pairwise(words)}
        struck = sorted(self.struck.keys() & names.union(words))
        is_allowed = any(violation.rule in EXPLAINED[self.struck[name]] for name in struck)
        self._world.counts["findings about struck ones"] += is_allowed
        return is_allowed


def _client_of(transaction: str) -> str:
    return transaction.partition(".")[0]
