"""The formats of tables. Each is a `TableFormat`."""
