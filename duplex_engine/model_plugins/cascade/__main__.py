"""`python -m duplex_engine.model_plugins.cascade`: fetch the embedded voice's weights, or list what the lock names."""

import argparse
import sys
from collections.abc import Sequence

from duplex_engine.errors import DuplexError
from duplex_engine.model_plugins.cascade.fetch import fetch, print_lock
from duplex_engine.model_plugins.cascade.models import CACHE_VARIABLE, cache_directory


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(
        prog="python -m duplex_engine.model_plugins.cascade",
        description="The weights of the embedded voice. The server opens what is on this machine and fetches nothing.",
        epilog=f"Fetched files lie in {cache_directory()}; set {CACHE_VARIABLE} to change that.",
    )
    commands = whole.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser(
        "fetch", help="bring the weights here and check them; does nothing when they are here"
    )
    fetching.add_argument(
        "--llm",
        default="default",
        metavar="default|light|NAME|PATH",
        help="language model: default (469 MiB), light (94 MiB, much simpler answers), a name of the lock, "
        "or a GGUF file of your own (default: %(default)s)",
    )
    commands.add_parser("list", help="print the model lock: every file with its licence, size, sha256 and presence")
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 with the reason on standard error."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "fetch":
            fetch(options.llm)
        else:
            print_lock()
    except DuplexError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
