"""Starts of a log against a stupid model, and across a restart."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.partition.log_starts import LogStarts, encode_start
from barnabas_raftlog.records.header import ControlKind, control_frame, parse_header


def note(starts: LogStarts, index: int, offset: int, *, at: int = 1 << 40) -> None:
    frame = control_frame(at, 1, ControlKind.PREFIX_TRUNCATION, encode_start(offset))
    starts.note(index, parse_header(frame), frame)


@given(
    st.lists(st.tuples(st.sampled_from(["frame", "commit", "truncate", "restart"]), st.integers(0, 9)), max_size=40),
)
def test_the_start_is_the_highest_that_is_committed(steps: list[tuple[str, int]]) -> None:
    frames: list[int] = []  # offsets; the frame at place i has index i + 1
    starts = LogStarts()
    committed = 0
    for what, number in steps:
        if what == "frame":
            frames.append(number * 10)
            note(starts, len(frames), number * 10)
        elif what == "commit":
            committed = min(len(frames), committed + number)
            before = starts.offset
            assert starts.commit(committed) == (starts.offset > before)
        elif what == "truncate":
            frames = frames[: max(committed, len(frames) - number)]
            starts.truncate_from(len(frames) + 1)
        else:
            # Saved as of the commit index, and the log behind that replayed; what is committed is not known at first.
            starts, saved = LogStarts(committed, starts.offset_as_of(committed)), starts.offset_as_of(committed)
            assert starts.offset == 0
            for index, offset in enumerate(frames, 1):
                note(starts, index, offset)
            assert starts.offset_as_of(committed) == saved
            starts.commit(committed)
        assert starts.offset == max([0, *frames[:committed]])
        wanted = number * 10
        under_way = next(
            (index for index in range(committed + 1, len(frames) + 1) if frames[index - 1] >= wanted), None
        )
        assert starts.index_for(wanted) == under_way


def test_a_frame_takes_nothing_away_that_comes_after_it() -> None:
    starts = LogStarts()
    note(starts, 1, 1_000, at=70)
    starts.commit(1)
    assert starts.offset == 70


def test_other_control_frames_are_none_of_its_business() -> None:
    starts = LogStarts()
    for kind in (ControlKind.NO_OP, ControlKind.MEMBERSHIP):
        frame = control_frame(50, 1, kind, encode_start(10))
        starts.note(1, parse_header(frame), frame)
    short = control_frame(50, 1, ControlKind.PREFIX_TRUNCATION, b"\0")
    starts.note(2, parse_header(short), short)
    assert not starts.commit(9)
