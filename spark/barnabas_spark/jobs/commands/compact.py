"""`barnabas-spark compact`."""

from typing import Annotated

import typer

from barnabas_spark.jobs.app import app
from barnabas_spark.jobs.options import (
    CODECS,
    FORMATS,
    ISOLATION_LEVELS,
    AcceptGap,
    Adopt,
    AsJson,
    Bootstrap,
    Compression,
    Format,
    Isolation,
    Level,
    Master,
    RoundSize,
    RowGroup,
    StoreOptions,
    To,
    Topic,
    one_of,
    pairs,
    size,
)

__all__ = ["compact"]


FromLake = Annotated[
    str, typer.Option("--from-lake", metavar="DIR|URL", help="Read this archive of the topic, and ask no broker.")
]
LakeFormat = Annotated[str, typer.Option("--lake-format", help="Of that archive; the same as --format if not given.")]
Merge = Annotated[bool, typer.Option("--merge", help="Then merge files, so that the table has one row a key.")]


@app.command()
def compact(  # noqa: PLR0913, PLR0917 - one for each option
    topic: Topic,
    to: To,
    kind: Format = "parquet",
    bootstrap: Bootstrap = "localhost:9092",
    master: Master = "",
    compression: Compression = "zstd",
    level: Level = None,
    row_group: RowGroup = "32m",
    round_size: RoundSize = "1g",
    accept_gap: AcceptGap = False,
    adopt: Adopt = False,
    from_lake: FromLake = "",
    lake_format: LakeFormat = "",
    merge: Merge = False,
    store_options: StoreOptions = None,
    isolation_level: Isolation = "read_committed",
    as_json: AsJson = False,
) -> int:
    """Keep the latest record of each key of a changelog in a table.

    A run takes what the table lacks of the topic, and no record twice. Read the table with `read_latest`.
    """
    from barnabas_spark.jobs.compacting import CompactJob, run_compact  # noqa: PLC0415 - loaded when it runs
    from barnabas_spark.lake.store import Location  # noqa: PLC0415 - see above
    from barnabas_spark.lake.writing import FileSettings  # noqa: PLC0415 - see above

    one_of("--isolation-level", isolation_level, ISOLATION_LEVELS)
    one_of("--format", kind, FORMATS)
    one_of("--compression", compression, CODECS)
    one_of("--lake-format", lake_format, ("", *FORMATS))
    options = pairs(store_options)
    job = CompactJob(
        topic,
        Location(to, options),
        kind,
        bootstrap,
        master,
        FileSettings(compression, level, size("--row-group-size", row_group)),
        size("--round-size", round_size),
        accept_gap,
        adopt,
        as_json,
        Location(from_lake, options) if from_lake else None,
        lake_format or kind,
        merge,
        isolation_level,
    )
    return run_compact(job)
