"""Draws the README's terminal session as `docs/session.svg`.

The session is run first, and drawn only if it prints what the README shows. So the picture is of a real session, and
yet the same in every run: its ids, times and process ids are those of the page.
"""

import io
import sys

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from documents.pages import sections, turns
from documents.reader import ROOT, Reader, page_text

__all__ = ["PAGE", "PICTURE", "SECTION", "drawn", "session"]

PAGE = "README.md"
SECTION = "Five commands"
PICTURE = ROOT / "docs" / "session.svg"
COLUMNS = 110
# As rich draws it, but with fonts that are there: nothing is loaded from anywhere.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: "Fira Code", "DejaVu Sans Mono", Menlo, Consolas, monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
        font-variant-east-asian: full-width;
    }}
    .{unique_id}-title {{
        font-size: 18px;
        font-weight: bold;
        font-family: arial, sans-serif;
    }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""


def session(text: str) -> list[tuple[str, str]]:
    """Return the commands of the README's session, each with the output that the page shows."""
    (section,) = (section for section in sections(text) if section.title == SECTION)
    consoles = (example for example in section.examples if example.language == "console")
    return [(turn.command, turn.output) for console in consoles for turn in turns(console.source)]


def drawn(said: list[tuple[str, str]]) -> str:
    """Return a terminal with these commands and outputs, as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for command, output in said:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")), soft_wrap=False)
        if output:
            console.print(Text(output.rstrip("\n")), soft_wrap=False)
    return console.export_svg(title="Barnabas", theme=MONOKAI, code_format=FORMAT, unique_id="session")


def main() -> int:
    with Reader() as reader:
        wrong = reader.read(PAGE, [SECTION])
    for one in wrong:
        print(one, file=sys.stderr)
    if wrong:
        print("the README shows something else; scripts/documents/examples --write renews it", file=sys.stderr)
        return 1
    PICTURE.write_text("\n".join(line.rstrip() for line in drawn(session(page_text(PAGE))).splitlines()) + "\n")
    print(f"drawn: {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
