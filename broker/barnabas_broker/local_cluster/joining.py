"""Draws and redeems the one-time tokens by which a machine gets the secret (`join_tokens`).

The command that prints a token draws it, not the broker, so that the pad travels only in the token.
"""

import contextlib
import dataclasses
import os
from pathlib import Path

import msgpack

from barnabas_broker.access.join_tokens import (
    ISSUE,
    JOIN,
    SALT_BYTES,
    SECRET_BYTES_MAX,
    JoinToken,
    TokenError,
    combine,
    key_of,
)
from barnabas_broker.config.broker import BrokerConfig, ConfigError, quoted
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links import admin

from .files import replace_file

__all__ = ["draw", "keep_secret", "redeem"]

TIMEOUT_S = 10.0


def draw(config: BrokerConfig, valid_s: int) -> JoinToken:
    """Draw a token, and have the broker of `config` keep its share.

    Raises:
        BarnabasError, TimeoutError: it does not, or there is no secret to hand on.
    """
    secret = config.cluster_secret.encode()
    if not 0 < len(secret) <= SECRET_BYTES_MAX:
        raise TokenError(f"a secret of {len(secret)} bytes cannot be handed on" if secret else "there is no secret")
    salt = os.urandom(SALT_BYTES)
    pad = os.urandom(len(secret))
    body = msgpack.packb((salt, combine(secret, pad), valid_s))
    host, port = config.nodes[config.node_id]
    return JoinToken(
        cluster_id=config.cluster_id,
        host=host,
        port=port,
        number=msgpack.unpackb(admin.ask(host, port, ISSUE, body, TIMEOUT_S, secret=secret)),
        key=key_of(secret, salt),
        pad=pad,
    )


def redeem(text: str, cluster_id: str) -> str:
    """Return the secret of the cluster for a token of it.

    Raises:
        TokenError: it is of another cluster, or worthless; says what to do.
    """
    token = JoinToken.parse(text)
    if token.cluster_id != cluster_id:
        raise TokenError(f"the token is of cluster {token.cluster_id}, not of {cluster_id}")
    where = f"{token.host}:{token.port}"
    try:
        share = admin.ask(token.host, token.port, JOIN, b"", TIMEOUT_S, secret=token.key, number=token.number)
        if len(share) != len(token.pad):
            raise TokenError("the answer is not a valid share of a secret")
        secret = combine(share, token.pad)
        # If somebody could change the answer, we would keep a secret that nobody knows.
        admin.ask(token.host, token.port, "status", b"", TIMEOUT_S, secret=secret)
        return secret.decode()
    except TimeoutError as error:
        raise TokenError(f"the token was not redeemed: {where} does not answer") from error
    except (BarnabasError, UnicodeDecodeError) as error:
        raise TokenError(
            f"the token was not redeemed by {where}, which may not know it any more ({error}): draw another one; if "
            "nobody of yours has used it, change the secret"
        ) from error


def keep_secret(path: Path, text: str) -> BrokerConfig:
    """Redeem a token for a broker whose file has no secret, and write the secret into the file, for its owner only.

    Raises:
        BarnabasError: the token is worthless, or the file cannot take a setting more. It is as it was then.
    """
    known = path.read_text(encoding="utf-8")
    config = BrokerConfig.from_toml(known)
    _with_secret(known, "x", path)  # Once the token has been redeemed it is too late to find that out.
    secret = redeem(text, config.cluster_id)
    replace_file(path, _with_secret(known, secret, path), is_secret=True)
    return dataclasses.replace(config, cluster_secret=secret)


def _with_secret(text: str, secret: str, path: Path) -> str:
    line = f"secret = {quoted(secret)}"
    for changed in (f"cluster.{line}\n{text}", text.replace("\n[cluster]\n", f"\n[cluster]\n{line}\n", 1)):
        with contextlib.suppress(ConfigError):
            if BrokerConfig.from_toml(changed).cluster_secret == secret:
                return changed
    raise TokenError(f"cannot write cluster.secret into {path}: put a line `[cluster]` into it, or take its secret out")
