"""The work of each command, one file a command. None of them knows typer."""
