"""The app that holds all commands. Nothing here imports torch before a command needs it."""

from __future__ import annotations

import importlib
import logging
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from securedfl.errors import INTERRUPTED, SecuredFLError

COMMANDS = (
    "new",
    "train",
    "up",
    "peer",
    "check",
    "certs",
    "federation",
    "relay",
    "extend",
    "stop",
    "withdraw",
    "roster",
    "design",
    "audit",
    "budget",
    "attack",
    "report",
    "watch",
    "data",
    "reproduce",
)
"""In the order of ``securedfl --help``; each is a module here with a function, or a typer app, of its name."""


class _Commands(TyperGroup):
    """Turns errors that a user can act on into one line and their exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SecuredFLError as error:
            if ctx.params.get("debug"):
                raise
            console = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)
            console.print(f"[bold red]error:[/] {escape(str(error))}")
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            Console(stderr=True, emoji=False).print("[bold red]stopped[/]")
            raise typer.Exit(INTERRUPTED) from None


class _Warnings(logging.Handler):
    """Says what the package warns of; a peer's log has a file of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(f"{record.levelname.lower()}: {record.getMessage()}", err=True)


app = typer.Typer(
    name="securedfl",
    cls=_Commands,
    help="Federated learning without a server: peers average their models in small groups.",
    epilog="Exit codes are explained in docs/reference/errors.md.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"securedfl {installed_version('securedfl')}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option(envvar="SECUREDFL_DEBUG", help="Show the traceback of errors.")] = False,
) -> None:
    """Federated learning without a server: peers average their models in small groups."""
    del version, debug
    logger = logging.getLogger("securedfl")
    if ctx.invoked_subcommand != "peer" and not any(isinstance(handler, _Warnings) for handler in logger.handlers):
        logger.addHandler(_Warnings(logging.WARNING))


def _register() -> None:
    for name in COMMANDS:
        command = getattr(importlib.import_module(f"{__package__}.{name}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


_register()
