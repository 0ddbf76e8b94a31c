"""`python -m mcpvectordb` is the program `mcpvectordb`."""

from mcpvectordb.cli.main import main

if __name__ == "__main__":
    main()
