"""Runs `python -m barnabas_spark.jobs`, which is the command `barnabas-spark`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
