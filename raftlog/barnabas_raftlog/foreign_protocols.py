"""Recognises TLS and HTTP on a connection to one of our ports. Pure.

It may be a client that was told to use TLS, a browser, or a health check over HTTP. Their first bytes, read as the
length of a frame, are some hundred million bytes or more, and a log that says so sends its reader looking in the wrong
place.
"""

__all__ = ["complaint_about"]

_HANDSHAKE_OR_ALERT = (b"\x16\x03", b"\x15\x03")  # types of records, and the major version of them all
_HTTP = {b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI ", b"HTTP"}


def complaint_about(start: bytes) -> str | None:
    """Name the protocol of a connection that begins with these four bytes; None: none that we know."""
    if start.startswith(_HANDSHAKE_OR_ALERT):
        return "it speaks TLS, and this port does not"
    return "it speaks HTTP, and this port does not" if start in _HTTP else None
