"""The codec engine: primitives, framing, checksums. Pure."""
