"""Compares what an example printed with what its page shows.

Numbers, ids and the widths of columns differ from run to run, and count as equal. A lag, and a line that is a number
and nothing else, are what an example is about, and do not. A shown line `...` stands for any number of lines. What a
command says after a second of waiting may be missing on the page: whether it comes is up to the machine. Pure.
"""

import re

__all__ = ["agree", "comparable"]

# 16 bytes in base64, so the last letter has two bits. One in forty has no digit: it is told from words by its letters.
CLUSTER_ID = re.compile(r"(?<![\w-])(?=[\w-]*\d|[\w-]*[a-z][\w-]*[A-Z]|[\w-]*[A-Z][\w-]*[a-z])[\w-]{21}[AQgw](?![\w-])")
TOPIC_ID = re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
NUMBER = re.compile(r"(?<!lag )\b\d[\d,.:]*(?<=\d)|(?<=[^\W\d])\d+")
NOTICE = re.compile(r"barnabas: (waiting for |[^:]*: still waiting).*")
COUNT = re.compile(r"\s*\d+\s*")


def comparable(line: str) -> str:
    """Return a line without what may differ between two runs of the same example."""
    if COUNT.fullmatch(line):
        return line.strip()
    line = CLUSTER_ID.sub("ID", TOPIC_ID.sub("ID", line))
    return " ".join(NUMBER.sub("0", line).split())


def agree(shown: str, printed: str) -> bool:
    """Return whether a page may show this of an example that printed that."""
    wanted = [comparable(line) for line in shown.splitlines()]
    shows_notices = any(map(NOTICE.fullmatch, shown.splitlines()))
    there = [comparable(line) for line in printed.splitlines() if shows_notices or not NOTICE.fullmatch(line)]
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in wanted)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in there)) is not None
