"""Decides when an entry is committed: the rule alone. Pure.

Raft paper 5.3, 5.4.2. An entry is committed once a majority of the voters hold it durably *and* the leader that counts
wrote it, or a later one, in its own term. An entry of an older term is never committed by counting: figure 8 of the
paper shows such an entry on a majority and overwritten afterwards. It is committed together with the first entry of the
leader's own term, which is why every leader starts its term with an empty one.

The leader counts itself like anybody else, by what its own disk holds. A leader whose disk is slow may therefore commit
an entry that it could still lose itself, which is sound, because the others could not lose it. If they could, too, it
counts nothing while its newest configuration is not on its own disk (`uncertainty` names the reason).

A leader that its newest configuration leaves out is not among those that are counted (thesis 4.2.2).

Not here: joint majorities. Voters change one at a time, so that old and new majorities always overlap.
"""

__all__ = ["committable_index", "majority", "majority_value"]


def majority(voter_count: int) -> int:
    """Return how many of `voter_count` voters are a majority: more than half, also of an even number."""
    return voter_count // 2 + 1


def majority_value(values: list[int]) -> int:
    """Return the highest value that a majority of `values` reaches. Sorts the list, which must not be empty."""
    values.sort()
    return values[(len(values) - 1) // 2]


def committable_index(durable_indexes: list[int], commit_index: int, term_start_index: int) -> int:
    """Return the new commit index of a leader.

    Args:
        durable_indexes: One for each voter, the leader's own included if it is one. Sorted in place.
        commit_index: The index that is known committed so far; the result is never lower.
        term_start_index: Index of the first entry of the leader's own term.
    """
    index = majority_value(durable_indexes)
    return index if index > commit_index and index >= term_start_index else commit_index
