"""How pages are taken apart, and when what was printed counts as what is shown."""

import pytest
from documents.comparison import agree
from documents.pages import Turn, sections, turns
from hypothesis import given
from hypothesis import strategies as st

PAGE = """# A page

```python
print(1)
```

It prints:

```text
1
```

## Save it

```python
# service.py
print(2)
```

<!-- before: make a mess -->
```console
$ python service.py
2
$ cat <<END
> text
> END
text
$ true
```

```sh
not run
```
"""


def test_a_program_is_followed_by_what_it_prints() -> None:
    first, second = sections(PAGE)
    (program,) = first.examples
    assert program.source == "print(1)\n"
    assert program.shown_at is not None
    assert PAGE[program.shown_at] == "1\n"
    assert (first.title, second.title) == ("", "Save it")


def test_a_program_with_the_name_of_a_file_is_saved_and_not_run() -> None:
    saved, console = sections(PAGE)[1].examples
    assert saved.saved_as == "service.py"
    assert console.before == "make a mess"
    assert sections(PAGE)[0].examples[0].saved_as is None


def test_commands_of_a_console_have_their_output() -> None:
    console = sections(PAGE)[1].examples[1]
    found = turns(console.source)
    assert [(one.command, one.output) for one in found] == [
        ("python service.py", "2\n"),
        ("cat <<END\ntext\nEND", "text\n"),
        ("true", ""),
    ]
    assert all(console.source[one.output_at :].startswith(one.output) for one in found)


def test_a_console_begins_with_a_command() -> None:
    with pytest.raises(ValueError, match="a console begins with"):
        turns("2\n$ one\n")


LINES = st.lists(st.sampled_from(["", "x", "1"]), max_size=3)
COMMANDS = st.lists(st.tuples(st.sampled_from(["true", "seq 3"]), LINES), max_size=4)


@given(COMMANDS)
def test_a_console_is_all_of_its_turns(said: list[tuple[str, list[str]]]) -> None:
    source = "".join(f"$ {command}\n" + "".join(f"{line}\n" for line in lines) for command, lines in said)
    found = turns(source)
    assert [one.command for one in found] == [command for command, _ in said]
    assert source == "".join(f"$ {one.command}\n{one.output}" for one in found)
    assert all(isinstance(one, Turn) for one in found)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("", ""),
        ("ready after 0.4 s\n", "ready after 1.25 s\n"),
        ("1     running  -\n", "13  running  -   \n"),
        ("cluster r-9ZxRyjQdad2PXCaDbXSQ\n", "cluster ftP8J2AtSa2f5_rYsDe5rQ\n"),
        ("cluster r-9ZxRyjQdad2PXCaDbXSQ\n", "cluster kvnyaKUlTWuq_fOBxfwcaw\n"),
        ("id 9df16ab9d5244048967754e5cef2e3f6\n", "id 0000000000000000000000000000000a\n"),
        ("coordinator 1  lag 6\n", "coordinator 3  lag 6\n"),
        ("2.5s and 8MB\n", "12.25s and 10MB\n"),
        ("in sync 1,2,3\n", "in sync 1,3\n"),
        ("...\nlast\n", "one\ntwo\nlast\n"),
        ("...\nlast\n...\n", "last\n"),
        ("ready\n", "barnabas: waiting for broker 2 to be ready; trying until 60 s are over\nready\n"),
        ("ready\n", "barnabas: connecting: still waiting (no answer from x:1 yet); trying until 3 s are over\nready\n"),
        ("barnabas: waiting for broker 2\nready\n", "barnabas: waiting for broker 3\nready\n"),
    ],
)
def test_numbers_ids_and_widths_may_differ(shown: str, printed: str) -> None:
    assert agree(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("", "one\n"),
        ("one\n", ""),
        ("ready\n", "not ready\n"),
        ("lag 0\n", "lag unknown\n"),
        ("one\ntwo\n", "two\none\n"),
        ("...\nlast\n", "last\nmore\n"),
        ("a -\n", "a 1\n"),
        ("ready\n", "barnabas: no broker answers at x:1\nready\n"),
        ("barnabas: waiting for broker 2\nready\n", "ready\n"),
        ("30\n", "0\n"),
        ("maxRecordsPerPartition\n", "NotEnoughReplicasError\n"),
        ("cluster r-9ZxRyjQdad2PXCaDbXSQ\n", "cluster kafka-console-producer\n"),
        ("coordinator 1  lag 6\n", "coordinator 3  lag 0\n"),
    ],
)
def test_words_and_lines_may_not(shown: str, printed: str) -> None:
    assert not agree(shown, printed)
