"""The scenes: one way to harm a broker each, in one table (`scene`)."""
