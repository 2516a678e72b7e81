"""A share of `scripts/fuzz --walker`: both twins say the same of damaged batches, also under an address sanitizer."""

import random
from itertools import islice
from typing import Any

import pytest
from fuzzing.walker import comparing
from fuzzing.walker.comparing import compared, kept
from fuzzing.walker.damage import Corpus, Damaged, damaged, sound, varints
from fuzzing.walker.families import FAMILIES, Family, Refused, outcome, place_of
from fuzzing.walker.sanitizing import sanitized_run

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.walker.faults import Fault, Walked
from barnabas_raftlog.records.walker.twins import IS_COMPILED

# Where nothing is compiled the twin gets all of it, and is compared with itself.
RUN = tuple(FAMILIES.values()) if IS_COMPILED else tuple(one._replace(compiled=one.pure) for one in FAMILIES.values())
SOUND = sound(random.Random(1), 100)


def some(seed: int, count: int) -> list[Damaged]:
    return list(islice(damaged(random.Random(seed), Corpus(SOUND)), count))


@pytest.mark.slow
def test_both_twins_say_the_same_of_damaged_batches() -> None:
    assert compared(10_000, 20, RUN).wrong == []


@pytest.mark.slow
@pytest.mark.timeout(1_200)  # In a new checkout a compiler works for half a minute first, which is no hang.
def test_the_compiled_walker_reads_nothing_beyond_a_batch() -> None:
    """Where no compiler is, there is nothing that could."""
    if IS_COMPILED:
        done = sanitized_run(8_000, 21, pure_every=10)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "nothing was wrong" in done.stdout


def test_sound_batches_are_sound_to_every_walker() -> None:
    check = FAMILIES["check"]._replace(compiled=FAMILIES["check"].pure)
    for batch in SOUND:
        found = outcome(check, check.twins()[1], batch)
        assert isinstance(found, Walked)
        assert found.fault is Fault.NONE


def test_the_damage_of_a_seed_is_always_the_same() -> None:
    assert some(1, 200) == some(1, 200)
    assert some(1, 200) != some(2, 200)


def test_damage_meets_every_fault_in_records_and_behind_them() -> None:
    check = FAMILIES["check"]
    walker = check._replace(compiled=check.pure).twins()[1]
    found = [outcome(check, walker, batch) for batch in some(3, 6_000)]
    walked = [one for one in found if isinstance(one, Walked)]
    assert {one.fault for one in walked} == set(Fault)
    assert sum(one.fault is Fault.NONE for one in walked) > 100
    assert sum(one.record > 0 for one in walked if one.fault) > 500


def test_the_varints_of_a_sound_body_are_all_found() -> None:
    batch = max(SOUND, key=lambda one: one.records)
    places = varints(batch.body)
    lengths = [one for number, one in enumerate(places) if one.record == number]
    assert len(lengths) == batch.records
    assert [one.end + one.value for one in lengths] == [one.start for one in lengths[1:]] + [len(batch.body)]


def test_a_batch_is_kept_as_a_line() -> None:
    assert all(Damaged.of_line(batch.line()) == batch for batch in some(4, 100))
    assert len(kept()) > 20


def test_a_difference_and_an_undeclared_error_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def differs(module: Any, batch: Damaged) -> object:
        return module if len(batch.body) == 40 else None

    def breaks(module: Any, batch: Damaged) -> object:
        raise IndexError(str(module is random and batch.records))

    monkeypatch.setattr(comparing, "FOUND_MAX", 3)
    monkeypatch.setattr(comparing, "kept", list)
    monkeypatch.setattr(comparing, "sound", lambda *_: [Damaged(bytes(40), 1, 0, 0, is_dense=True)] * 2)
    found = compared(
        100, 1, [Family("differs", "random", "itertools", differs), Family("breaks", "random", "itertools", breaks)]
    )
    assert any(text.startswith("differs: compiled <module 'random'") for text in found.wrong)
    assert any(text.startswith("breaks: IndexError('1')") for text in found.wrong)
    assert len(found.wrong) < 6


def test_places_are_alike_if_only_numbers_differ() -> None:
    def refuse(_: Any, batch: Damaged) -> object:
        raise CorruptBatchError(f"{batch.records} records")

    family = Family("refuses", "random", "random", refuse)
    first, second = (outcome(family, random, SOUND[0]._replace(records=count)) for count in (1, 7))
    assert first == Refused("CorruptBatchError", "1 records")
    assert place_of(first) == place_of(second)
