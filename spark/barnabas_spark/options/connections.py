"""Checks the options that say how brokers are reached, of reads and of writes. Pure."""

from collections.abc import Mapping

from barnabas_clients.cluster.bootstrap import parse_bootstrap

from .names import OptionError

__all__ = ["bootstrap_servers", "check_plaintext"]


def bootstrap_servers(options: Mapping[str, str]) -> str:
    """Return the addresses to start from. `options` has lower-case names.

    Raises:
        OptionError: there are none, or one is no address.
    """
    found = options.get("kafka.bootstrap.servers", "").strip()
    if not found:
        raise OptionError("kafka.bootstrap.servers", "is required; write host:port, several separated by commas")
    try:
        parse_bootstrap(found)
    except ValueError as error:
        raise OptionError("kafka.bootstrap.servers", str(error)) from None
    return found


def check_plaintext(options: Mapping[str, str]) -> None:
    """Refuse any other security: to ignore it would be dangerous."""
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise OptionError("kafka.security.protocol", f"{protocol} is not supported yet, only PLAINTEXT")
