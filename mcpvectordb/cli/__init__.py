"""What a person types: commands that are thin over the library. Nothing here is imported by the
library.
"""
