"""Decodes values into columns, with a schema that grows, and keeps what does not fit in a table beside."""
