"""Reads the tables of differences in the pages of the documentation."""

from pathlib import Path

__all__ = ["told_differences"]

KINDS = {"rows", "refused"}


def told_differences(page: Path, heading: str) -> dict[str, tuple[str, str]]:
    """Return how Spark's and ours answer, `rows` or `refused`, by the name of the difference, as a section says."""
    section = page.read_text().partition(heading)[2].partition("\n## ")[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[1].split(":")[0] in KINDS:
            found[cells[0]] = (cells[1].split(":")[0], cells[2].split(":")[0])
    return found
