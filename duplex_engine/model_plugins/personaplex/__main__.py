"""`python -m duplex_engine.model_plugins.personaplex`: fetch a checkpoint, make a tiny one, or look at one."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from duplex_engine.errors import CodedError, DuplexError
from duplex_engine.model_plugins.personaplex.fetch import FetchFailed, Source, fetch
from duplex_engine.model_plugins.personaplex.files import find_checkpoint
from duplex_engine.model_plugins.personaplex.text import EXTRA_COMMAND

INTERRUPTED = 130
EXIT_CODES = """\
exit status: 0 done; 1 something here is missing or wrong; 2 the command line is; 3 the hub refuses, or does not have the
files; 4 no hub can be reached; 130 interrupted. The reason goes to standard error.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(
        prog="python -m duplex_engine.model_plugins.personaplex",
        description="Checkpoints of PersonaPlex. The server opens what is on this machine and fetches nothing.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser("fetch", help="bring the published files into a directory (17 GB) and check them")
    fetching.add_argument("folder", type=Path, metavar="DIR")
    fetching.add_argument("--repo", default=Source().repository, help="repository of the hub (default: %(default)s)")
    fetching.add_argument("--revision", default=Source().revision, help="branch, tag or commit (default: %(default)s)")
    tiny = commands.add_parser("make-tiny", help="write a tiny checkpoint with random weights, to try things with")
    tiny.add_argument("folder", type=Path, metavar="DIR")
    tiny.add_argument(
        "--steps", type=int, choices=(8, 16), default=16, help="inner steps in the file (default: %(default)s)"
    )
    checking = commands.add_parser("check", help="look at a checkpoint: files, sizes, voices, how many calls fit")
    checking.add_argument("folder", metavar="DIR")
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status, with the reason on standard error unless it is 0."""
    options = parser().parse_args(arguments)
    try:
        run(options)
    except KeyboardInterrupt:
        print("\ninterrupted; run the same command again to go on", file=sys.stderr)
        return INTERRUPTED
    except ModuleNotFoundError as error:
        print(f"error: the package {error.name} is not installed; run: {EXTRA_COMMAND}", file=sys.stderr)
        return 1
    except (DuplexError, OSError) as error:
        print(f"error: {error.message if isinstance(error, CodedError) else error}", file=sys.stderr)
        return error.exit_code if isinstance(error, FetchFailed) else 1
    return 0


def run(options: argparse.Namespace) -> None:
    """Do what the command line says. Raises DuplexError, OSError or ModuleNotFoundError with the reason."""
    match options.command:
        case "fetch":
            fetch(options.folder, Source(repository=options.repo, revision=options.revision))
        case "make-tiny":
            from duplex_engine.model_plugins.personaplex.tiny import make_tiny

            make_tiny(options.folder, steps=options.steps)
            print(f"a tiny checkpoint is in {options.folder}; look at it with the command check")
        case "check":
            from duplex_engine.model_plugins.personaplex.inspection import report

            for line in report(find_checkpoint(options.folder)):
                print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
