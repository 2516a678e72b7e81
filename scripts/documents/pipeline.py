"""Draws `docs/spark/pipeline.svg`: where records come from, and where they go. Pure but for `main`."""

import html
import sys
from typing import NamedTuple

from documents.reader import ROOT

__all__ = ["PICTURE", "drawn"]

PICTURE = ROOT / "docs" / "spark" / "pipeline.svg"
WIDTH, HEIGHT = 860, 300
STYLE = """\
    text { font: 14px "DejaVu Sans", Verdana, Arial, sans-serif; fill: #1f2933; text-anchor: middle; }
    .what { font-weight: bold; }
    .how { font: 12px "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #52606d; }
    rect { rx: 8px; stroke: #52606d; stroke-width: 1.2; fill: #ffffff; }
    .ours { fill: #d5f0ec; stroke: #00796b; }
    path { stroke: #52606d; stroke-width: 1.6; fill: none; marker-end: url(#tip); }
    #tip path { fill: #52606d; stroke: none; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e7eb; }
      .how { fill: #b6bfc9; }
      rect { fill: #28303a; stroke: #9aa5b1; }
      .ours { fill: #0d4740; stroke: #4db6ac; }
      path { stroke: #9aa5b1; }
      #tip path { fill: #9aa5b1; }
    }"""


class Box(NamedTuple):
    """A place of the pipeline: its middle, its width, its name and the word that one types for it."""

    x: int
    y: int
    width: int
    what: str
    how: str
    is_ours: bool = False


BOXES = (
    Box(90, 150, 140, "services", "Producer"),
    Box(310, 150, 160, "topics", "brokers", is_ours=True),
    Box(570, 50, 190, "batches", "spark.read", is_ours=True),
    Box(570, 150, 190, "streams", "spark.readStream", is_ours=True),
    Box(570, 250, 190, "archive", "barnabas-spark", is_ours=True),
    Box(780, 100, 130, "DataFrames", "your job"),
    Box(780, 250, 130, "a lake", "tables of files"),
)
BOX_HEIGHT = 56
ARROWS = (
    "M160 150 H224",
    "M390 135 C430 135 430 50 469 50",
    "M390 150 H469",
    "M390 165 C430 165 430 250 469 250",
    "M665 50 C690 50 690 90 709 90",
    "M665 150 C690 150 690 112 709 112",
    "M665 250 H709",
    "M780 222 V134",
    # What a job has made goes back to topics.
    "M780 72 V12 H310 V116",
)
WORDS = ((440, 8, "df.write, writeStream"), (692, 206, "read_all, read_lake"))


def drawn() -> str:
    """Return the picture; it loads nothing, and follows the reader's choice of light or dark."""
    boxes = "\n".join(map(_box, BOXES))
    arrows = "\n".join(f'  <path d="{arrow}"/>' for arrow in ARROWS)
    words = "\n".join(f'  <text class="how" x="{x}" y="{y}">{html.escape(text)}</text>' for x, y, text in WORDS)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -14 {WIDTH} {HEIGHT + 14}" role="img">
  <title>From services through topics to DataFrames and a lake, and back</title>
  <style>
{STYLE}
  </style>
  <defs>
    <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
      <path d="M0 0 L8 4 L0 8 z"/>
    </marker>
  </defs>
{arrows}
{boxes}
{words}
</svg>
"""


def _box(box: Box) -> str:
    kind = ' class="ours"' if box.is_ours else ""
    left, top = box.x - box.width // 2, box.y - BOX_HEIGHT // 2
    return f"""\
  <rect{kind} x="{left}" y="{top}" width="{box.width}" height="{BOX_HEIGHT}"/>
  <text class="what" x="{box.x}" y="{box.y - 4}">{html.escape(box.what)}</text>
  <text class="how" x="{box.x}" y="{box.y + 15}">{html.escape(box.how)}</text>"""


def main() -> int:
    PICTURE.write_text(drawn())
    return 0


if __name__ == "__main__":
    sys.exit(main())
