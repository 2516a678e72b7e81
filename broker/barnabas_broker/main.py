"""Runs one broker: `python -m barnabas_broker.main [--config FILE] [--set NAME=VALUE] [--token T] [--ready-fd N]`.

Settings come from the file, from the environment (`BARNABAS_LOG_DIR`) and from `--set`; `config.sources` says which
counts. `barnabas broker run` is this, without `--ready-fd` in its help.

Signals: SIGTERM and SIGINT stop the broker in good order, once; a second one ends it at once, as `kill -9` would, which
costs nothing but a scan at the next start. Exit status: 0 stopped as asked, 1 could not start, 2 the
command line makes no sense, 70 a bug, or a failed replica of the metadata, stopped it.

With `--ready-fd` one line is written to that descriptor: `ready` when clients find every leader, or `error: ...`.

The interpreter is set up for a loop that shares its lock with storage threads: a thread that wants to run waits at most
half a millisecond, not five; objects that start-up has built are taken out of the garbage collector's sight; later ones
are looked at in small pieces (`GC_THRESHOLDS`); and memory that a load has left behind goes back to the kernel when the
broker is quiet (`heap_upkeep`), not when some callback frees the last of it (`keep_freed`).
"""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Any

from barnabas_broker.config.addresses import AssignmentError
from barnabas_broker.config.broker import BrokerConfig, ConfigError
from barnabas_broker.config.sources import gather
from barnabas_broker.process.command_line import CommandLineError, Options, parse
from barnabas_broker.process.heap_upkeep import HeapUpkeep
from barnabas_broker.process.log_lines import log_as_configured
from barnabas_broker.process.loop_errors import end_on_bugs
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.memory import keep_freed
from barnabas_raftlog.printable import printable
from barnabas_raftlog.records.walker.twins import LACK

from .node import Node

__all__ = ["main"]

logger = logging.getLogger("barnabas_broker.main")  # also where it is `__main__`

SWITCH_INTERVAL_S = 0.0005
# Objects more than there were, then how many collections of these may come between two of the next older ones. Young
# objects are put by each time that the loop has used 10 ms, and after each slice of long work (`collector`), so this is
# for code that makes a great many in one go; with 3,000 it came in the midst of slices, which took twice as long by it.
# With 50,000 and 20, and nothing put by, the loop stood for 620 ms while a topic of 10,000 partitions was made. To look
# at all objects takes longest, and is the rarest: each time that something is put by counts as one collection, 200 in a
# second, and so it would come every minute where others wait hours.
GC_THRESHOLDS = 7_000, 0, 2_000_000
# Nearly all that a start makes stays. To look at a million objects takes half a second, in the midst of elections.
GC_THRESHOLDS_STARTING = 10_000_000, 20, 100
FAILED = 1
ASKED_WRONGLY = 2
BROKEN = 70


def main(argv: Sequence[str] | None = None) -> int:
    """Run one broker until it is told to stop, and return the exit status."""
    if not __debug__:
        sys.stderr.write("barnabas broker: refuses to run under -O: its assertions guard your data\n")
        return FAILED
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
    except CommandLineError as error:
        _say(str(error))
        return ASKED_WRONGLY
    try:
        config = _configuration(options)
        log_as_configured(
            config.log_level, config.log_format, config.log_file_path, config.log_file_max_bytes, config.log_file_count
        )
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}" if error.filename else str(error), options.ready_fd)
    except BarnabasError as error:
        status = ASKED_WRONGLY if isinstance(error, AssignmentError) else FAILED
        return _refuse(str(error), options.ready_fd, status)
    if LACK:
        logger.warning("%s", LACK)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    keep_freed()
    gc.set_threshold(*GC_THRESHOLDS_STARTING)
    _raise_file_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_run(config, options.ready_fd))


def _configuration(options: Options) -> BrokerConfig:
    """Return the settings of all sources, after getting the secret if there is none but a token.

    Raises:
        OSError: the file cannot be read.
        BarnabasError: a setting is wrong, the token is worthless, or there must be a secret and is none.
    """
    config = _with_secret(options)
    try:
        config.check_keyed()
    except ConfigError as error:
        raise ConfigError(f"{options.config}: {error}" if options.config else str(error)) from error
    return config


def _with_secret(options: Options) -> BrokerConfig:
    file = options.config

    def gathered() -> BrokerConfig:
        contents = None if file is None else file.read_bytes()
        return gather(contents, os.environ, options.settings, file_name="" if file is None else str(file))

    config = gathered()
    if options.token is None or config.cluster_secret:
        return config
    if file is None:
        raise ConfigError("--token writes the secret into the broker's file: give --config FILE")
    from barnabas_broker.local_cluster.joining import keep_secret  # noqa: PLC0415 - needed once in the life of a broker

    try:
        keep_secret(file, options.token)
    except BarnabasError as error:
        raise ConfigError(f"{file}: {error}") from error
    return gathered()


async def _run(config: BrokerConfig, ready_fd: int | None) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            logger.warning("stopping at once")
            os._exit(128 + signal.SIGTERM)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    node = Node(config)
    end_on_bugs(loop, node.fail)
    try:
        await node.start()
    except (BarnabasError, OSError) as error:
        status = _refuse(f"node {config.node_id} cannot start: {error}", ready_fd)
        sys.stderr.flush()
        os._exit(status)  # Threads and half-open parts go with the process.
    announcing = loop.create_task(_announce(node, ready_fd))
    upkeep = HeapUpkeep()
    upkeep.start()
    ends: list[asyncio.Future[Any]] = [node.failure, loop.create_task(stop.wait())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    announcing.cancel()
    upkeep.close()
    if node.failure.done():
        logger.critical("node %d is broken and stops at once", config.node_id, exc_info=node.failure.exception())
        logging.shutdown()
        os._exit(BROKEN)
    logger.info("node %d is stopping", config.node_id)
    await node.stop()
    logger.info("node %d has stopped", config.node_id)
    return 0


async def _announce(node: Node, ready_fd: int | None) -> None:
    missing = await node.wait_ready()
    if missing:
        logger.warning("node %d is ready without nodes %s, which are not there", node.config.node_id, missing)
    else:
        logger.info("node %d is ready", node.config.node_id)
    _tell(ready_fd, "ready")
    # Without a collection before: with thousands of replicas it takes longer than the peers' patience.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _say(text: str) -> None:
    sys.stderr.write(f"barnabas broker: {printable(text)}\n")


def _refuse(text: str, ready_fd: int | None, status: int = FAILED) -> int:
    text = printable(text)
    _say(text)
    _tell(ready_fd, f"error: {text}")
    return status


def _tell(ready_fd: int | None, line: str) -> None:
    if ready_fd is not None:
        # The process that started us may be gone; that is no reason to stop.
        with contextlib.suppress(OSError):
            os.write(ready_fd, line.encode() + b"\n")
            os.close(ready_fd)


def _raise_file_limit() -> None:
    """Allow as many connections as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    try:
        from uvloop import Loop  # noqa: PLC0415 - there is none for every platform
    except ImportError:
        return None
    return Loop


if __name__ == "__main__":
    sys.exit(main())
