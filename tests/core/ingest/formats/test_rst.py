from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import IngestError
from mcpvectordb.ingest.formats.rst import parse
from tests.support_formats import read, source

MANUAL = """\
=========
The Guide
=========

:Author: Ann Author
:Date: 2024-05-01

.. a comment
   that goes on

.. _first:

Getting started
===============

Install the package with ``pip`` and read
:ref:`the manual <manual>`, see `the site <https://a.example>`_ and :func:`~os.path.join`.

* one item
  that goes on
* another one

1. first
2. second

Usage
-----

Call it like this::

    import fruit

    fruit.eat()

.. code-block:: python
   :linenos:

   def f():
       return 1

.. note:: Mind the *gap*.

   It is wide.

>>> 1 + 1
2

.. image:: picture.png
   :alt: nothing

+-------+-------+
| Sort  | Price |
+=======+=======+
| Apple | 1.20  |
+-------+-------+

=====  =====
Sort   Price
=====  =====
Pear   0.80
=====  =====

.. [1] A footnote.

.. toctree::
   :maxdepth: 2

   other
"""


def test_a_manual_becomes_markdown() -> None:
    assert (
        read(MANUAL, "guide.rst").text
        == """\
# The Guide

Author: Ann Author

Date: 2024-05-01

## Getting started

Install the package with `pip` and read the manual, see the site and `os.path.join`.

- one item that goes on
- another one

1. first
2. second

### Usage

Call it like this:

```
import fruit

fruit.eat()
```

```python
def f():
    return 1
```

Note: Mind the *gap*.

It is wide.

```python
>>> 1 + 1
2
```

| Sort | Price |
| --- | --- |
| Apple | 1.20 |

| Sort | Price |
| --- | --- |
| Pear | 0.80 |

[1] A footnote.
"""
    )


def test_title_and_fields_are_taken() -> None:
    parsed = read(MANUAL, "guide.rst")
    assert parsed.title == "The Guide"
    assert parsed.metadata == {"author": "Ann Author", "date": "2024-05-01"}


def test_heading_levels_follow_the_order_of_the_underline_characters() -> None:
    raw = "One\n~~~\n\nTwo\n^^^\n\nThree\n~~~~~\n\ntext\n"
    assert read(raw, "a.rst").text == "# One\n\n## Two\n\n# Three\n\ntext\n"


def test_the_description_of_a_function_keeps_its_signature() -> None:
    raw = (
        ".. py:function:: eat(fruit, *, slowly=False)\n   :module: x\n\n   Eat it.\n\n"
        "   .. versionadded:: 3.1\n      The flag.\n"
    )
    assert (
        read(raw, "a.rst").text
        == "eat(fruit, *, slowly=False)\n\nEat it.\n\nVersionadded: 3.1\n\nThe flag.\n"
    )


def test_a_file_without_title_is_named_after_itself() -> None:
    assert read("just words\n", "a.rst").title == "a.rst"


@given(st.text(":.`=-*| >ab\n+_[]", max_size=80))
def test_arbitrary_text_gives_text_or_an_ingest_error(text: str) -> None:
    with suppress(IngestError):
        parse(source(text, "a.rst"))


@pytest.mark.long
def test_a_long_hostile_file_is_parsed_in_little_time() -> None:
    for part in (
        ".. note::\n",
        ".. a::\n   :b:\n",
        "=\n",
        "::\n\n x\n",
        "+-+\n|a\n",
        "= =\n",
        ":a: b\n",
        "``a`",
    ):
        with suppress(IngestError):
            parse(source(part * 20_000, "a.rst"))
