"""Names, options and help of every command, declared with typer. Begin with `app`."""
