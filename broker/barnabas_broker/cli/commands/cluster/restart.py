"""`barnabas cluster restart`: restart brokers one after the other, each when the cluster is healthy.

So clients go on meanwhile, if every topic has replicas on several brokers. A broker that is down is only started. How
the cluster is comes from what all brokers say on their peer ports, asked again with growing pauses, as a client does:
only then it is known that a broker which was away has all of its copies again.
"""

import selectors
import time
from collections.abc import Sequence
from pathlib import Path

from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.output import complain, say, say_json
from barnabas_broker.local_cluster.files import ClusterFiles
from barnabas_broker.local_cluster.interrupts import Interrupts
from barnabas_broker.local_cluster.notices import NOTICE_S
from barnabas_broker.local_cluster.plan import Request
from barnabas_broker.local_cluster.status import cluster_status
from barnabas_broker.local_cluster.supervisor import start_cluster, stop_brokers
from barnabas_broker.status.verdict import Health, brokers_named, enumerated

from .stop import chosen

__all__ = ["restart"]

STOP_TIMEOUT_S = 15.0
PAUSE_MIN_S = 0.05
PAUSE_MAX_S = 0.5


def restart(data: Path, brokers: Sequence[int], timeout_s: float, *, as_json: bool) -> int:
    """Restart all brokers of this machine, or the named ones; each step has `timeout_s`."""
    directory = data.absolute()
    files = ClusterFiles.load(directory)
    wanted = chosen(files, brokers)
    done: list[int] = []
    with Interrupts() as interrupts:
        try:
            for node_id in wanted:
                began = time.monotonic()
                _restart(files, node_id, timeout_s, interrupts)
                done.append(node_id)
                if as_json:
                    say_json({"broker": node_id, "took_s": round(time.monotonic() - began, 3)})
                else:
                    say(f"restarted broker {node_id} in {time.monotonic() - began:.1f} s")
        except KeyboardInterrupt:
            complain(f"interrupted; {_left(wanted, done)}")
            return 130
        except CommandError as error:
            raise CommandError(f"{error}; {_left(wanted, done)}") from error
    return 0


def _restart(files: ClusterFiles, node_id: int, timeout_s: float, interrupts: Interrupts) -> None:
    if files.process(node_id) is not None:
        _wait_until_healthy(files, f"before broker {node_id} is stopped", timeout_s, interrupts)
        with files.lock():
            stop_brokers(files, [node_id], STOP_TIMEOUT_S, interrupts, complain)
    start_cluster(Request(directory=files.directory, timeout_s=timeout_s, only=(node_id,)), interrupts, complain)
    _wait_until_healthy(files, f"after broker {node_id} was started", timeout_s, interrupts)


def _left(wanted: Sequence[int], done: Sequence[int]) -> str:
    left = [node_id for node_id in wanted if node_id not in done]
    are = "is" if len(left) == 1 else "are"
    return f"restarted: {enumerated(done) if done else 'none'}; {brokers_named(left)} {are} left"


def _wait_until_healthy(files: ClusterFiles, when: str, timeout_s: float, interrupts: Interrupts) -> None:
    """Return when nothing is lacking; say what is after a second, and each time that it has changed.

    Raises:
        CommandError: it was not so in time.
        KeyboardInterrupt: somebody wishes to end this.
    """
    began = time.monotonic()
    pause_s = PAUSE_MIN_S
    told = ""
    with selectors.DefaultSelector() as selector:
        selector.register(interrupts, selectors.EVENT_READ)
        while True:
            found = cluster_status(files)
            if found["health"] == Health.HEALTHY:
                return
            verdict = f"{found['health']}: {'; '.join(found['reasons'])}"
            took_s = time.monotonic() - began
            if took_s >= timeout_s:
                raise CommandError(f"the cluster is not healthy after {timeout_s:g} s, {when}: {verdict}")
            if took_s >= NOTICE_S and verdict != told:
                told = verdict
                complain(f"waiting for a healthy cluster {when}: {verdict}")
            if selector.select(pause_s) and interrupts.asked():
                raise KeyboardInterrupt
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
