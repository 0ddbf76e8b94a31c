"""`python -m mcpvectordb` is the program `mcpvectordb`."""

import gc
import os
import sys


def main() -> None:
    """Run the program; a hook, which hosts run at every turn, without what the shell needs."""
    if sys.argv[1:2] == ["hook"] and "--help" not in sys.argv:
        # It ends before there is anything to collect, and with nothing that is to be torn down.
        gc.disable()
        from mcpvectordb.hooks.run import main as hook

        os._exit(hook(sys.argv[2:]))
    from mcpvectordb.cli.main import main as program

    program()


if __name__ == "__main__":
    main()
