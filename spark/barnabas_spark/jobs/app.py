"""The command `barnabas-spark`, before any job is in it."""

import typer

__all__ = ["app"]

app = typer.Typer(
    help="Jobs over topics and tables of a lake, on Spark.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    no_args_is_help=True,
)


@app.callback()
def barnabas_spark() -> None:
    """Jobs over topics and tables of a lake, on Spark."""
