"""Finds the secret of a cluster, and its address, in the files of this machine."""

from pathlib import Path
from typing import NamedTuple

from barnabas_broker.cli.config_files import read_config
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.local_cluster.files import ClusterFiles

__all__ = ["Known", "known_of"]


class Known(NamedTuple):
    """What the files say: the secret, and where clients find the cluster."""

    secret: str
    bootstrap: str


def known_of(data: Path | None, config_file: Path | None) -> Known:
    """Read it from a cluster's directory, or from a broker's configuration.

    Raises:
        UsageError: both are given, or none is.
        CommandError: there is no secret.
    """
    if (data is None) == (config_file is None):
        if data is not None:
            raise UsageError("--data and --config exclude each other; give one of them")
        raise UsageError(
            "events name groups and clients, so the brokers want the cluster's secret: "
            "give --data DIR (of `cluster start`) or --config FILE (a broker's), which have it"
        )
    if data is not None:
        files = ClusterFiles.load(data.absolute())
        config = files.config(files.local_ids[0])
        known = Known(config.cluster_secret, files.bootstrap)
    else:
        assert config_file is not None
        config = read_config(config_file)
        known = Known(config.cluster_secret, str(config.advertised))
    if not known.secret:
        raise CommandError(
            f"{data or config_file} has no cluster.secret, without which no broker tells events to a client; "
            "`barnabas cluster status --verbose` shows them on the brokers' machines"
        )
    return known
