"""Writes the report of an audit: one HTML page that needs no other file, with plots."""

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from barnabas_spark.jobs.output import shown_bytes

from .evidence import Evidence
from .findings import Finding
from .plots import coverage, file_sizes, lags, rows_over_time
from .summary import PartitionSummary
from .tables import partition_table, shown

__all__ = ["page_of"]

_STYLE = """
:root { color-scheme: light dark; --page: #fbfbfa; --card: #ffffff; --ink: #1d2326; --soft: #5c676d; --faint: #b9c1c5;
  --line: #e4e7e8; --good: #0f8a7e; --log: #4a6fdc; --bad: #d63a2f; --warn: #d99a1b; }
@media (prefers-color-scheme: dark) { :root { --page: #14181a; --card: #1c2225; --ink: #e6eaec; --soft: #9aa6ac;
  --faint: #56626a; --line: #2c3438; --good: #35b8a8; --log: #7f9cf5; --bad: #ff6b5e; --warn: #f0b83f; } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", sans-serif }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 64px }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 17px; margin: 36px 0 10px }
p, .soft { color: var(--soft) } p { margin: 4px 0 }
.verdict { display: inline-block; margin: 18px 0 6px; padding: 8px 16px; border-radius: 8px; font-weight: 600;
  font-size: 18px; color: var(--page) }
.sound { background: var(--good) } .wrong { background: var(--bad) }
.numbers { display: flex; flex-wrap: wrap; gap: 12px; margin-top: 16px }
.numbers div { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px 16px;
  min-width: 130px } .numbers b { display: block; font-size: 21px; font-variant-numeric: tabular-nums }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px }
.pair { display: flex; flex-wrap: wrap; gap: 16px } .pair > div { flex: 1 1 400px }
.scroll { overflow-x: auto } svg { width: 100%; height: auto; display: block; font-family: inherit }
svg text { font-family: system-ui, "Segoe UI", sans-serif !important; font-size: 9.5px }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px }
th, td { padding: 5px 12px 5px 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--soft); font-weight: 500; white-space: nowrap } td.number, th.number { text-align: right }
tr:last-child td { border-bottom: 0 } .bad { color: var(--bad); font-weight: 600 } .ok { color: var(--good) }
.key span { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin: 0 6px 0 14px;
  vertical-align: -1px } .key { margin: 0 0 8px -14px; font-size: 13px }
"""


def page_of(seen: Evidence, summaries: Sequence[PartitionSummary], findings: Sequence[Finding], verdict: str) -> str:
    """Return the page. `verdict` is what the command says at its end."""
    wrong = any(one.is_wrong for one in findings)
    title = f"Audit of {seen.topic}"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{_text(_subject(seen))}</p>",
        f'<div class="verdict {"wrong" if wrong else "sound"}">{_text(verdict.partition(":")[0].capitalize())}</div>',
        f"<p>{_text(verdict.partition(': ')[2])}</p>",
        _numbers(seen, summaries),
        _findings(findings),
        "<h2>Partitions</h2>",
        _partitions(seen, summaries),
        _plots(seen, summaries, findings),
        _proved(seen),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_text(title)}</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body><main>\n' + (
        "\n".join(filter(None, parts)) + "\n</main></body></html>\n"
    )


def _subject(seen: Evidence) -> str:
    at = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    lake = f"{seen.kind} table {seen.location}, version {seen.version}" if seen.location else "the topic alone"
    topic = f"; topic id {seen.logs.topic_id}" if seen.logs is not None else "; no broker was asked"
    return f"{lake}{topic}; {at}"


def _numbers(seen: Evidence, summaries: Sequence[PartitionSummary]) -> str:
    lag = [one.lag for one in summaries if one.lag is not None]
    numbers = [
        ("rows", f"{sum(one.rows for one in summaries):,}"),
        ("partitions", f"{len(summaries):,}"),
        ("files", f"{len(seen.files):,}" if seen.location else ""),
        ("stored", shown_bytes(sum(one.size_bytes for one in seen.files)) if seen.location else ""),
        ("lag of the lake", f"{sum(lag):,}" if lag else ""),
        ("timestamps going back", f"{sum(one.steps_back for one in summaries):,}"),
    ]
    kept = [(name, value) for name, value in numbers if value]
    cells = "".join(f'<div><b>{_text(value)}</b><span class="soft">{name}</span></div>' for name, value in kept)
    return f'<div class="numbers">{cells}</div>'


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = (
        (
            ("bad" if one.is_wrong else "soft", one.kind),
            ("number", shown(None if one.partition < 0 else one.partition)),
            ("", shown(None if one.start_offset < 0 else f"[{one.start_offset:,}, {one.end_offset:,})")),
            ("", one.text),
        )
        for one in findings
    )
    return "<h2>What was found</h2>" + _table((("", ""), ("number", "partition"), ("", "offsets"), ("", "")), rows)


def _partitions(seen: Evidence, summaries: Sequence[PartitionSummary]) -> str:
    columns, rows = partition_table(seen, summaries)
    kinds = ["number" if all(isinstance(row[at], int | None) for row in rows) else "" for at in range(len(columns))]
    cells = (
        tuple(
            ("ok" if value == "sound" else "bad" if value == "WRONG" else kind, shown(value))
            for kind, value in zip(kinds, row, strict=True)
        )
        for row in rows
    )
    return _table(tuple(zip(kinds, columns, strict=True)), cells)


def _plots(seen: Evidence, summaries: Sequence[PartitionSummary], findings: Sequence[Finding]) -> str:
    key = [("good", "in the lake" if seen.location else "read"), ("log", "in the log"), ("bad", "wrong")]
    if any(one.purpose == "gap" for one in seen.claims.kept):
        key.append(("warn", "gap that was accepted"))
    legend = "".join(f'<span style="background: var(--{colour})"></span>{name}' for colour, name in key)
    sizes = file_sizes([one.size_bytes for one in seen.files if one.size_bytes])
    behind = lags(summaries)
    small = "".join(
        f'<div><h2>{title}</h2><div class="card">{plot}</div></div>'
        for title, plot in (("Sizes of files", sizes), (f"Lag{' of lake and group' if seen.group else ''}", behind))
        if plot
    )
    times = rows_over_time(seen.timeline)
    offsets = coverage(seen, findings)
    return "\n".join(
        [
            f'<h2>Offsets</h2><div class="card"><p class="key">{legend}</p>{offsets}</div>' if offsets else "",
            f'<h2>Rows over time (UTC)</h2><div class="card">{times}</div>' if times else "",
            f'<div class="pair">{small}</div>' if small else "",
        ]
    )


def _proved(seen: Evidence) -> str:
    said = [
        "Every file of the table was read, and every row was assigned to the commit that covers its offset."
        if seen.location
        else "",
        "A commit is proved if its rows are there, each offset once, and the CRC-32C over offsets, timestamps, keys,"
        " values and headers is the one that was committed with them."
        if seen.location
        else "",
        "The log was read again, and its rows were compared in the same way." if seen.log and seen.location else "",
        "The log was read from its start to its end." if seen.log and not seen.location else "",
        "The rows of the log were not read." if not seen.log else "",
    ]
    return "<h2>What was proved, and how</h2>" + "".join(f"<p>{one}</p>" for one in said if one)


def _table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[tuple[str, str]]]) -> str:
    head = "".join(f'<th class="{kind}">{_text(name)}</th>' for kind, name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{_text(text)}</td>' for kind, text in row) + "</tr>\n" for row in rows
    )
    return f'<div class="card scroll"><table><tr>{head}</tr>\n{body}</table></div>'


def _text(text: str) -> str:
    return html.escape(text)
