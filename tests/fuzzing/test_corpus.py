"""Inputs that searches have kept go through every decoder again: only declared errors come out."""

import pytest
from fuzzing.decoders import corpus
from fuzzing.decoders.targets import TARGETS

INPUTS_MIN = {"requests": 150, "responses": 150, "records": 30, "peers": 30, "quorum": 5}


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_but_declared_errors_comes_out(target: str) -> None:
    kept = corpus.kept(target)
    assert len(kept) >= INPUTS_MIN[target]
    for data in kept:
        TARGETS[target](data)


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in corpus.FOLDER.iterdir()) < 1 << 20
    assert {path.stem for path in corpus.FOLDER.iterdir()} == {*TARGETS, "walker"}
