"""Runs many seeded histories of the numbering; each mutant, without one rule, is noticed."""

import random
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas_clients.producer import sequences
from barnabas_clients.producer.sequences import EPOCH_MAX, SEQUENCE_MODULUS, Outcome

from .test_sequences_model import IN_FLIGHT_MAX, ProducerMachine

SEEDS = 400
STEPS = 60
MUTANTS = {
    "what may be appended is repeated in a new epoch": (
        "while self.pipeline and self.pipeline[0].may_be_appended:",
        "while False:",
    ),
    "pipelining begins at once": ("            self._is_proven\n", "            True\n"),
    "numbers are used anew though they may be in the log": (
        "if self._identity is None or (batch.may_be_appended and not batch.is_after_gap):",
        "if self._identity is None:",
    ),
    "batches go again while others are out": (
        "if not self.pipeline or not self._all_are_back():",
        "if not self.pipeline:",
    ),
    "a lost answer is taken for a refusal": ("            batch.may_be_appended = True\n", "            pass\n"),
    "a doubtful answer is taken for a refusal": (
        " or outcome is Outcome.DOUBTFUL:\n            batch.may_be",
        ":\n            batch.may_be",
    ),
    "epochs do not count": ("            self.epoch += 1\n", "            pass\n"),
}


def history(machine_type: type[ProducerMachine], seed: int) -> None:
    """Live through one history: bursts of sending, an unreliable leader, broken connections and late copies."""
    chance = random.Random(seed)
    machine = machine_type()
    machine.begin(
        takes_any_first=chance.random() < 0.5,
        epoch=chance.choice([0, 0, EPOCH_MAX - 1]),
        sequence=chance.choice([0, 0, SEQUENCE_MODULUS - 7]),
    )
    faults = chance.choice(
        [[], [Outcome.NOT_NOW], [Outcome.REFUSED], [Outcome.UNKNOWN], [Outcome.DOUBTFUL], list(Outcome)[1:5]]
    )
    for _ in range(STEPS):
        _step(machine, chance, faults)
        machine.nothing_is_doubled()
        machine.order_holds()
        machine.what_is_told_is_true()
    machine.teardown()


def _step(machine: ProducerMachine, chance: random.Random, faults: list[Outcome]) -> None:
    has_answer = bool(machine.connection) and machine.connection[0].outcome is not None
    fault = chance.choice(faults) if faults and chance.random() < 0.3 else None
    steps: list[tuple[float, bool, Callable[[], None]]] = [  # weight, whether it is possible now, what happens
        (30, True, lambda: machine.send_new(chance.randint(1, 3))),
        (12, True, machine.send_again),
        (20, machine.next_unseen() is not None, lambda: machine.leader_takes(fault, after=chance.random() < 0.5)),
        (18, has_answer, machine.answer_comes),
        (5, bool(machine.sequences.pipeline), lambda: machine.give_up(chance.randrange(IN_FLIGHT_MAX))),
        (5, bool(machine.connection), machine.connection_breaks),
        (8, any(machine.late), lambda: machine.late_copy_is_taken(chance.randrange(10))),
        (2, machine.identity.producer_id < 0, machine.get_an_id),
    ]
    possible = [step for step in steps if step[1]]
    (chosen,) = chance.choices(possible, weights=[weight for weight, _, _ in possible])
    chosen[2]()


def test_every_history_ends_well() -> None:
    for seed in range(SEEDS):
        history(ProducerMachine, seed)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_noticed(mutant: str) -> None:
    source = Path(str(sequences.__file__)).read_text()
    rule, without = MUTANTS[mutant]
    assert source.count(rule) == 1, "the rule reads otherwise now"
    module = types.ModuleType("mutant")
    exec(compile(source.replace(rule, without), "mutant", "exec"), module.__dict__)  # noqa: S102 - our own source

    class Mutated(ProducerMachine):
        pass

    Mutated.module = module

    def all_histories() -> None:
        for seed in range(SEEDS):
            history(Mutated, seed)

    with pytest.raises(AssertionError):
        all_histories()
