"""Keeps a membership in a consumer group. Begin with `session`; `member` has the rules without I/O."""
