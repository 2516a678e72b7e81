"""Takes the examples out of a page of the documents.

An example is a fenced block, and its language says what happens to it:

- `console`: lines that begin with `$ ` are commands, those that begin with `> ` go on with one, and the lines behind a
  command are what it prints, on stdout and stderr. A line `...` stands for any number of lines.
- `python`: a program. If its first line is a comment with the name of a file, as `# service.py`, it is saved there, for
  the commands that follow; otherwise it is run.
- `sql`: statements, which only the pages of a notebook run (`cells.py`).
- `text`, behind a program and before any other block: what that program prints.

Blocks of other languages are for reading. `<!-- before: COMMAND -->` above a block is a command that prepares what no
reader would make (a spoilt record, for example). Pure.
"""

import re
from typing import NamedTuple

__all__ = ["PROGRAMS", "Example", "Section", "Turn", "sections", "turns"]

PROGRAMS = ("python", "sql")
FENCE = re.compile(
    r"^(?:<!-- before: (?P<before>.*?) -->\n+)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
SAVED = re.compile(r"# ([\w-]+\.\w+)\n")


class Example(NamedTuple):
    """One block. `shown_at` is where the page shows its output, as a slice of the page's text; None if it does not."""

    language: str
    source: str
    before: str | None
    body_at: slice
    shown_at: slice | None

    @property
    def saved_as(self) -> str | None:
        found = SAVED.match(self.source) if self.language == "python" else None
        return found and found[1]


class Section(NamedTuple):
    """What stands under one heading, its subsections included; the text before the first has an empty title."""

    title: str
    examples: tuple[Example, ...]


class Turn(NamedTuple):
    """A command of a console, and the whole lines that the page shows as its output: `output` begins at `output_at`."""

    command: str
    output: str
    output_at: int


def turns(source: str) -> list[Turn]:
    """Return the commands of a `console` block; `output_at` counts from the beginning of the block's text.

    Raises:
        ValueError: the block begins with something else than a command.
    """
    found: list[Turn] = []
    at = 0
    for line in source.splitlines(keepends=True):
        at += len(line)
        if line.startswith("$ "):
            found.append(Turn(line[2:].rstrip("\n"), "", at))
        elif not found:
            raise ValueError(f"a console begins with '$ ', not with {line!r}")
        elif line.startswith("> ") and not found[-1].output:
            command = f"{found[-1].command}\n{line[2:]}".rstrip("\n")
            found[-1] = Turn(command, "", at)
        else:
            found[-1] = found[-1]._replace(output=found[-1].output + line)
    return found


def sections(text: str) -> list[Section]:
    """Return the sections of a page that have examples, in order; headings within fenced blocks are none."""
    starts = [0]
    titles = [""]
    fenced = [range(*found.span()) for found in FENCE.finditer(text)]
    for heading in re.finditer(r"^## (.+)$", text, re.MULTILINE):
        if not any(heading.start() in block for block in fenced):
            starts.append(heading.start())
            titles.append(heading[1])
    found = [
        Section(title, tuple(example for example in _examples(text) if start <= example.body_at.start < end))
        for title, start, end in zip(titles, starts, [*starts[1:], len(text)], strict=True)
    ]
    return [section for section in found if section.examples]


def _examples(text: str) -> list[Example]:
    found: list[Example] = []
    for block in FENCE.finditer(text):
        language, body_at = block["language"], slice(*block.span("body"))
        if language == "text":
            if found and found[-1].language in PROGRAMS and found[-1].shown_at is None:
                found[-1] = found[-1]._replace(shown_at=body_at)
        elif language in {"console", *PROGRAMS}:
            shown_at = body_at if language == "console" else None
            found.append(Example(language, block["body"], block["before"], body_at, shown_at))
        elif found and found[-1].shown_at is None:
            # A block between a program and a text: that text belongs to nothing.
            found.append(Example(language, block["body"], None, body_at, body_at))
    return [example for example in found if example.language in {"console", *PROGRAMS}]
