"""Writes a folder of text files to a topic, a micro-batch a file, exactly once and past gates.

python -m spark.faults.exactly_once.program --bootstrap-server HOST:PORT --source DIR --topic NAME --folder DIR [...]
"""

import argparse
from pathlib import Path

from barnabas_spark.jobs.session import session

from .gated import GatedDataSource

__all__ = ["main"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap-server", "source", "topic", "folder", "master"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--partitions", type=int, required=True, help="that rows are divided into before the write")
    parser.add_argument("--timeout-ms", type=int, required=True, help="of transactions, where time ends them")
    given = parser.parse_args()
    folder = Path(given.folder)
    with session("exactly once", given.master) as spark:
        spark.dataSource.register(GatedDataSource)
        frame = spark.readStream.schema("value string").option("maxFilesPerTrigger", "1").text(given.source)
        options = {
            "kafka.bootstrap.servers": given.bootstrap_server,
            "topic": given.topic,
            "exactlyOnce": "true",
            "kafka.transaction.timeout.ms": str(given.timeout_ms),
            "checkpointLocation": str(folder / "checkpoint"),
            "gates": str(folder / "gates"),
        }
        writer = frame.repartition(given.partitions).writeStream.format("gated").options(**options)
        writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
