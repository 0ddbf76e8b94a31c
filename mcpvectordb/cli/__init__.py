"""The command line: thin commands over the library, which never imports them."""
