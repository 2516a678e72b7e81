"""Begins a batch of a sink on the driver, once, in the moment in which its writer goes to the tasks.

PySpark makes the writer of a stream twice for each micro-batch: the first one is pickled for the tasks, the second one
commits, knows nothing of the first but what tasks report, and is never pickled. To begin with the second one would
fence the first. So a batch begins when its writer is pickled.

*The sink of a stream* is its query, whose id is in the checkpoint: another checkpoint is another sink, whose batches
begin at 0. The id is read from a checkpoint in a directory. For one elsewhere the sink has to be named (`txnAppId`),
and tasks, which know the query, see to it that one name is not used for two.
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from barnabas_spark.options.names import OptionError
from barnabas_spark.options.writes import ExactlyOnce, WriteOptions

from .plan import Begun, begin
from .requests import carry_out

__all__ = ["Beginning", "check_batch", "sink_of_stream"]


class Beginning:
    """The beginning of a batch: happens on the way to the tasks, and arrives there as what came of it."""

    def __init__(self, sink: str, options: WriteOptions) -> None:
        self.sink = sink
        self._options = options
        self._begun: Begun | None = None

    @property
    def begun(self) -> Begun:
        """What the batch starts from; begins it if that was not done."""
        if self._begun is None:
            self._begun = carry_out(begin(self.sink), self._options)
        return self._begun

    def __getstate__(self) -> dict[str, Any]:
        return {"sink": self.sink, "_options": self._options, "_begun": self.begun}


def check_batch(once: ExactlyOnce) -> str:
    """Return the sink of a batch that is no micro-batch.

    Raises:
        OptionError: it has no name, or no version.
    """
    if not once.app_id:
        raise OptionError("txnAppId", "is required with exactlyOnce: it names the sink, and txnVersion its batches")
    if once.version is None:
        raise OptionError("txnVersion", "is required with exactlyOnce: a batch is written if it is above the last one")
    return once.app_id


def sink_of_stream(once: ExactlyOnce) -> str:
    """Return the sink of a stream.

    Raises:
        OptionError: there is no way to tell which query this is.
    """
    if once.version is not None:
        raise OptionError("txnVersion", "is for batches: a stream counts its own")
    if once.app_id:
        return once.app_id
    if not once.checkpoint:
        raise OptionError("exactlyOnce", "needs the option checkpointLocation, or txnAppId to name the sink")
    place = urlsplit(once.checkpoint)
    path = Path(unquote(place.path) if place.scheme == "file" else once.checkpoint) / "metadata"
    if place.scheme not in {"", "file"}:
        raise OptionError("exactlyOnce", f"needs txnAppId to name the sink: {once.checkpoint} is not read here")
    try:
        found = json.loads(path.read_text("utf-8"))["id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OptionError("exactlyOnce", f"needs txnAppId to name the sink: {path} has no query id ({error})") from None
    return str(found)
