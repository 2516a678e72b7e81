"""What each command does, one file a command. None of them knows typer."""
