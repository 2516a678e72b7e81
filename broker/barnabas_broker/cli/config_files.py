"""Reads the configuration of a broker that a command was given."""

from pathlib import Path

from barnabas_broker.config.broker import BrokerConfig, ConfigError

from .errors import CommandError

__all__ = ["read_config"]


def read_config(path: Path) -> BrokerConfig:
    """Return the configuration in the file of `--config`.

    Raises:
        CommandError: it does not make sense. OSError: it cannot be read.
    """
    try:
        return BrokerConfig.from_bytes(path.read_bytes())
    except ConfigError as error:
        raise CommandError(f"--config {path}: {error}") from error
