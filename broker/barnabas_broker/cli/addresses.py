"""Reads the address that a command was given."""

from barnabas_clients.cluster.bootstrap import Endpoint, parse_bootstrap

from .errors import UsageError

__all__ = ["endpoints_of"]


def endpoints_of(bootstrap: str) -> list[Endpoint]:
    """Return the addresses of `--bootstrap-server`.

    Raises:
        UsageError: a part is not a valid address.
    """
    try:
        return parse_bootstrap(bootstrap)
    except ValueError as error:
        raise UsageError(f"--bootstrap-server: {error}") from error
