"""Draws the pictures of the page about plots, by running it, and the picture of the pipeline."""

import shutil
import sys

from documents.examples import SPARK_PAGES
from documents.notebook import NotebookProcess
from documents.pipeline import PICTURE, drawn
from documents.reader import Reader

__all__ = ["PAGE", "PLOTS"]

PAGE = "docs/spark/notebook.md"
PLOTS = "plots"
"""Where the page saves them, behind the name of the cluster's directory."""


def main() -> int:
    PICTURE.write_text(drawn())
    with Reader() as reader, NotebookProcess(reader.environment, str(reader.desk)) as notebook:
        reader.read(SPARK_PAGES[0], ["Start"], notebook=notebook)
        wrong = reader.read(PAGE, notebook=notebook)
        for one in wrong:
            print(one)
        for plot in sorted(reader.beside(PLOTS).glob("*.svg")):
            shutil.copy(plot, PICTURE.with_name(plot.name))
            print(f"{PICTURE.with_name(plot.name)} is drawn")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
