"""`barnabas cluster token`: print a token, by which another machine gets the secret."""

from pathlib import Path

from barnabas_broker.cli.config_files import read_config
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.output import complain, say, say_json
from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.local_cluster.files import ClusterFiles
from barnabas_broker.local_cluster.joining import draw
from barnabas_broker.local_cluster.notices import noticed
from barnabas_raftlog.errors import BarnabasError

__all__ = ["issue"]


def issue(data: Path | None, config_file: Path | None, valid_s: int, *, as_json: bool = False) -> int:
    """Print a token for one other machine; the broker of this one that answers keeps the other half."""
    if (data is None) == (config_file is None):
        raise UsageError("give either --data, of a cluster that `cluster start` made, or --config, of a broker")
    configs = _configs(data, config_file)
    reason = ""
    for config in configs:
        try:
            with noticed(complain, f"waiting for broker {config.node_id}"):
                token = draw(config, valid_s)
        except BarnabasError as error:
            reason = reason or str(error)
        except TimeoutError:
            reason = reason or "no answer"
        else:
            say(f"valid once, for {valid_s} s, while broker {config.node_id} runs", to_stderr=True)
            if as_json:
                say_json({"token": str(token), "broker": config.node_id, "valid_s": valid_s})
            else:
                say(str(token))
            return 0
    raise CommandError(f"no broker of this machine keeps a token: {reason}")


def _configs(data: Path | None, config_file: Path | None) -> list[BrokerConfig]:
    if data is not None:
        files = ClusterFiles.load(data.absolute())
        return [files.config(node_id) for node_id in files.local_ids]
    assert config_file is not None
    return [read_config(config_file)]
