"""The console script: brings the commands together and turns what goes wrong into an exit code.

Loads typer and nothing heavier; each command imports what it needs when it is called.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Final

import typer

from engines.api import CbbenchError
from engines.clock import WallClock
from harness.cli.baseline import app as baseline_app
from harness.cli.calibrate import calibrate
from harness.cli.certify import certify
from harness.cli.check import check
from harness.cli.compare import compare
from harness.cli.engines import engines
from harness.cli.explain import explain
from harness.cli.model import app as model_app
from harness.cli.replay import replay
from harness.cli.report import report
from harness.cli.run import run
from harness.cli.serve import serve
from harness.cli.trace import trace
from harness.cli.unread import unread
from harness.cli.workloads import workloads

USAGE: Final = 2
DEFECT: Final = 70  # as sysexits.h has it: no answer of any command
INTERRUPTED: Final = 130
_DEBUG: Final = "--debug"

app = typer.Typer(
    name="cbbench",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(serve)
app.command()(report)
app.command()(compare)
app.command()(check)
app.command()(calibrate)
app.command()(certify)
app.command()(explain)
app.command()(replay)
app.command()(trace)
app.command()(engines)
app.command()(workloads)
app.add_typer(baseline_app, name="baseline")
app.add_typer(model_app, name="model")


@app.callback(invoke_without_command=True)
def _cbbench(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option(_DEBUG, hidden=True)] = False,
) -> None:
    """Compares batching schedulers for LLM serving, on one machine, under the same traffic."""
    if show_version:
        typer.echo(f"cbbench {version('cbbench')}")
        raise typer.Exit(0)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(USAGE)
    context.obj = WallClock()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line and exits."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.stdout, sys.stderr = unread(sys.stdout), unread(sys.stderr)
    _never_fail_on_encoding()
    sys.exit(run_command(words))


def run_command(words: list[str]) -> int:
    """The exit code of a command line; a mistake is told in one line on stderr.

    A defect of cbbench is told with its traceback and is no answer, so it is not 1.
    """
    try:
        code = app(words, standalone_mode=False, prog_name="cbbench")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:  # typer leaves with 1 at any broken pipe, a worker's too
        if isinstance(end.__context__, BrokenPipeError):
            return _tell(end.__context__, debug=False)
        raise
    except Exception as error:
        return _tell(error, debug=_DEBUG in words)


def _tell(error: Exception, *, debug: bool) -> int:
    """typer's own errors know how they read; any error but those and ours is a defect."""
    say = getattr(error, "format_message", None)
    if not debug and (isinstance(error, CbbenchError) or say is not None):
        text = str(error) if say is None else str(say())
        print(f"error: {' '.join(text.split())}", file=sys.stderr)
        return USAGE
    traceback.print_exception(error)
    return USAGE if isinstance(error, CbbenchError) or say is not None else DEFECT


def _never_fail_on_encoding() -> None:
    """A stream that lacks a character writes its escape instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
