from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from typing import Any

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpvectordb import filters
from mcpvectordb.errors import InvalidFilter
from mcpvectordb.filters.dialect import FUNCTIONS, SQLITE, FilterDialect
from mcpvectordb.records import Condition
from tests.reference_filters import matches
from tests.support import scaled

COLUMNS = {"title": "items.title", "size": "items.size"}
INSERT = "INSERT INTO items (title, size, metadata) VALUES (?, ?, ?)"


def written(metadata: Any) -> str | None:
    if metadata is None:
        return None
    return json.dumps(metadata, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Shelf:
    """A real table of titles, sizes and metadata, asked through compiled filters."""

    dialect: FilterDialect = SQLITE

    def __init__(self) -> None:
        self.connection: Any = apsw.Connection(":memory:")
        for name, (function, arguments) in FUNCTIONS.items():
            self.connection.create_scalar_function(name, function, arguments, deterministic=True)
        self.connection.execute(
            "CREATE TABLE items (key INTEGER PRIMARY KEY, title TEXT, size INTEGER, metadata TEXT) "
            "STRICT;"
            "CREATE INDEX items_by_title ON items (title)"
        )

    def close(self) -> None:
        self.connection.close()

    def fill(self, rows: list[tuple[str | None, int | None, Any]]) -> None:
        self.connection.execute("DELETE FROM items")
        self.connection.executemany(
            INSERT, [(title, size, written(metadata)) for title, size, metadata in rows]
        )

    def compile(self, checked: list[Condition], columns: Any = COLUMNS) -> tuple[str, list[Any]]:
        return filters.compile(checked, columns, "items.metadata", self.dialect)

    def select(self, where: Any) -> list[int]:
        """Positions of the matching rows, counted from 0."""
        sql, bindings = self.compile(filters.conditions(where))
        rows = self.connection.execute(f"SELECT key FROM items WHERE {sql} ORDER BY key", bindings)
        return [key - 1 for (key,) in rows]

    def select_typed(self, column: str, values: list[Any], checked: list[Condition]) -> list[int]:
        """Positions of the values of a column of one kind that fulfil conditions."""
        sql, bindings = filters.compile(checked, TYPED, "NULL", self.dialect)
        rows = self.connection.execute(
            f"SELECT v.key FROM (SELECT key, value AS {column} FROM json_each(?)) AS v "
            f"WHERE {sql} ORDER BY v.key",
            (json.dumps(values), *bindings),
        )
        return [key for (key,) in rows]

    def plan(self, where: Any) -> str:
        sql, bindings = self.compile(filters.conditions(where))
        rows = self.connection.execute(
            f"EXPLAIN QUERY PLAN SELECT key FROM items WHERE {sql}", bindings
        )
        return " ".join(row[3] for row in rows)


class PostgresShelf(Shelf):
    """The same table in PostgreSQL."""

    def __init__(self, url: str) -> None:
        import psycopg

        from mcpvectordb.filters.postgres import POSTGRES
        from mcpvectordb.postgres import schema
        from mcpvectordb.postgres.connection import Server, Session

        self.dialect = POSTGRES
        server = Server(url)
        schema.migrate(server)
        server.close()
        self.server = psycopg.connect(url, autocommit=True)
        self.server.execute("SET search_path = mcpvectordb, public")
        self.server.execute(
            'CREATE TABLE items (key integer PRIMARY KEY, title text COLLATE "C", size bigint, '
            "metadata json); CREATE INDEX items_by_title ON items (title)"
        )
        self.connection = Session(self.server)

    def close(self) -> None:
        self.server.close()

    def fill(self, rows: list[tuple[str | None, int | None, Any]]) -> None:
        self.server.execute("TRUNCATE items")
        with self.server.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO items (key, title, size, metadata) VALUES (%s, %s, %s, %s::json)",
                [
                    (key, title, size, written(metadata))
                    for key, (title, size, metadata) in enumerate(rows, 1)
                ],
            )

    def select_typed(self, column: str, values: list[Any], checked: list[Condition]) -> list[int]:
        sql, bindings = filters.compile(checked, TYPED, "NULL::json", self.dialect)
        kind = "bigint" if column == "size" else "text"
        rows = self.connection.execute(
            f"SELECT v.key FROM (SELECT place - 1 AS key, {column}::{kind} FROM "
            f"json_array_elements_text(?::json) WITH ORDINALITY AS each ({column}, place)) AS v "
            f"WHERE {sql} ORDER BY v.key",
            (json.dumps(values), *bindings),
        )
        return [key for (key,) in rows]

    def plan(self, where: Any) -> str:
        sql, bindings = self.compile(filters.conditions(where))
        self.server.execute("SET enable_seqscan = off")
        rows = self.connection.execute(f"EXPLAIN SELECT key FROM items WHERE {sql}", bindings)
        return " ".join(line for (line,) in rows)


class IndexedShelf(PostgresShelf):
    """The same with an index of its metadata, as that of documents."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.server.execute("CREATE TEMP TABLE document_fields (LIKE mcpvectordb.document_fields)")

    def fill(self, rows: list[tuple[str | None, int | None, Any]]) -> None:
        super().fill(rows)
        self.server.execute(
            "TRUNCATE document_fields; INSERT INTO document_fields "
            "SELECT key, 0, term FROM items, field_terms(metadata) AS term"
        )

    def select(self, where: Any) -> list[int]:
        sql, bindings = filters.compile(
            filters.conditions(where), COLUMNS, "d.fields", self.dialect
        )
        rows = self.connection.execute(
            "SELECT d.key FROM items JOIN (SELECT key, metadata AS fields FROM items) d "
            f"ON d.key = items.key WHERE {sql} ORDER BY d.key",
            bindings,
        )
        return [key - 1 for (key,) in rows]


@pytest.fixture(scope="module", params=["sqlite", "postgres", "indexed"])
def shelf(request: pytest.FixtureRequest) -> Iterator[Shelf]:
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            shelf = Shelf()
        else:
            server = request.getfixturevalue("postgres")
            kind = PostgresShelf if request.param == "postgres" else IndexedShelf
            shelf = kind(stack.enter_context(server.database()))
        yield shelf
        shelf.close()


def selected(shelf: Shelf, values: list[Any], *condition: Any) -> list[Any]:
    """The values of one metadata key that a condition selects; `...` stands for a missing key."""
    shelf.fill([("", 0, {} if value is ... else {"k": value}) for value in values])
    return [values[position] for position in shelf.select([("metadata.k", *condition)])]


def refusal(where: Any) -> str:
    with pytest.raises(InvalidFilter) as caught:
        filters.compile(filters.conditions(where), COLUMNS, "items.metadata")
    return str(caught.value)


# What users write.


@pytest.mark.parametrize("where", [None, {}, [], ()])
def test_no_condition_selects_everything(shelf: Shelf, where: Any) -> None:
    shelf.fill([("a", 1, None), (None, None, {"k": 1})])
    assert filters.conditions(where) == []
    assert shelf.compile(filters.conditions(where)) == ("TRUE", [])
    assert shelf.select(where) == [0, 1]


def test_a_where_is_a_mapping_or_a_list_of_tuples() -> None:
    where = {"title": "a", "metadata.year": {"gte": 2020, "lt": 2025}, "metadata.tags": ["x"]}
    assert filters.conditions(where) == [
        Condition("title", "eq", "a"),
        Condition("metadata.year", "gte", 2020),
        Condition("metadata.year", "lt", 2025),
        Condition("metadata.tags", "eq", ["x"]),
    ]
    listed = [("title", "exists"), ("title", "eq", "a", False), Condition("size", "gt", 1)]
    assert filters.conditions(listed) == [
        Condition("title", "exists"),
        Condition("title", "eq", "a", case_sensitive=False),
        Condition("size", "gt", 1),
    ]


def test_a_dotted_field_is_a_path_and_a_tuple_names_keys_with_dots(shelf: Shelf) -> None:
    shelf.fill([("", 0, {"a": {"b": 1}}), ("", 0, {"a.b": 1}), ("", 0, {"a": {"b": {"": 1}}})])
    assert shelf.select({"metadata.a.b": 1}) == [0]
    assert shelf.select([(("metadata", "a.b"), "eq", 1)]) == [1]
    assert shelf.select([(("metadata", "a", "b", ""), "eq", 1)]) == [2]


def test_a_path_does_not_step_into_arrays(shelf: Shelf) -> None:
    shelf.fill([("", 0, {"a": ["x"]}), ("", 0, {"a": {"0": "x"}}), ("", 0, ["x"])])
    assert shelf.select({"metadata.a.0": "x"}) == [1]
    assert shelf.select({"metadata.0": "x"}) == []


# What operators mean: some examples; the reference implementation says it of all values.

ZOO = [5, 5.0, 5.5, "5", True, False, 1, 0, None, "a", "A", "", [], [5], {}, {"a": 1}, ...]
NUMERIC = [9, 10.5, "11", " 1e2 ", "-3", "abc", "12abc", "0x20", True, None, [99], {"a": 99}]
STRINGS = ["50% off", "50x off", "a_b", "aXb", 1505, 50.25, True, None, ["50%"], "5"]
NAMES = ["Straße", "STRASSE", "Österreich", 7]
LISTS = [["a", "B"], [1], [1.0, 2], [True], ["1"], [[1]], "a", 1, {"x": "a"}, None, ...]
DAYS = ["2024-01-31", "2024-02-01", "2024-02-01T10:00Z", "\U0001f600", "\uffff", 2025, None]


@pytest.mark.parametrize(
    ("stored", "condition", "expected"),
    [
        (ZOO, ("eq", 5), [5, 5.0]),
        (ZOO, ("eq", "5"), ["5"]),
        (ZOO, ("eq", True), [True]),
        (ZOO, ("eq", None), [None]),
        (ZOO, ("eq", [5.0]), [[5]]),
        (ZOO, ("eq", {"a": 1.0}), [{"a": 1}]),
        (ZOO, ("ne", 5), ["5", 5.5, True, False, 1, 0, "a", "A", "", [], [5], {}, {"a": 1}]),
        (ZOO, ("exists",), [5, 5.0, 5.5, "5", True, False, 1, 0, *ZOO[9:-1]]),
        (ZOO, ("not_exists",), [None, ...]),
        (ZOO, ("is_null",), [None]),
        (ZOO, ("in", [5, "a"]), [5, 5.0, "5", "a"]),
        (ZOO, ("in", ["true"]), [True]),
        (ZOO, ("not_in", [5, 1, True, 0, "a"]), [5.5, False, "A", "", [], [5], {}, {"a": 1}]),
        (NUMERIC, ("gt", 10), [10.5, "11", " 1e2 "]),
        (NUMERIC, ("lte", 9), [9, "-3"]),
        (DAYS, ("gte", "2024-02-01"), DAYS[1:5]),
        (DAYS, ("gt", "\uffff"), ["\U0001f600"]),
        (STRINGS, ("contains", "0%"), ["50% off"]),
        (STRINGS, ("contains", "a_b"), ["a_b"]),
        (STRINGS, ("starts_with", "50"), ["50% off", "50x off", 50.25]),
        (STRINGS, ("ends_with", "5"), [1505, 50.25, "5"]),
        (LISTS, ("array_contains", 1), [[1], [1.0, 2]]),
        (LISTS, ("array_contains", "b", False), [["a", "B"]]),
        (NAMES, ("eq", "STRASSE", False), ["Straße", "STRASSE"]),
        (NAMES, ("not_in", ["ÖSTERREICH", 7], False), ["Straße", "STRASSE"]),
        (NAMES, ("ends_with", "SSE", False), ["Straße", "STRASSE"]),
        ([["A"], ["a"]], ("eq", ["a"], False), [["a"]]),
    ],
)
def test_operators_mean_what_the_documentation_says(
    shelf: Shelf, stored: list[Any], condition: tuple[Any, ...], expected: list[Any]
) -> None:
    assert sorted(map(repr, selected(shelf, stored, *condition))) == sorted(map(repr, expected))


@pytest.mark.parametrize(
    "condition",
    [
        ("eq", "a"),
        ("in", ["a"]),
        ("contains", "a"),
        ("array_contains", "a"),
        ("gt", "a"),
        ("eq", 1, False),
        ("in", [1, 2], False),
        ("gt", 1, False),
        ("exists", None, False),
        ("array_contains", True, False),
    ],
)
def test_python_functions_are_called_only_for_case_folding_and_structured_values(
    condition: tuple[Any, ...],
) -> None:
    sql, _ = filters.compile(filters.conditions([("metadata.k", *condition)]), COLUMNS, "m")
    assert not any(name in sql for name in FUNCTIONS)


def test_an_index_on_a_column_serves_eq(shelf: Shelf) -> None:
    plan = shelf.plan({"title": "a", "metadata.k": {"ne": 1}})
    assert "items_by_title (title=?)" in plan or "Index Cond: (title = " in plan


# What is refused.


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (
            {"year": 1},
            "unknown field 'year'; fields are title, size; metadata keys are written metadata.year",
        ),
        (
            {"titel": 1},
            "unknown field 'titel'; did you mean title? fields are title, size; metadata keys are "
            "written metadata.titel",
        ),
        (
            {"metadata": 1},
            "unknown field 'metadata'; fields are title, size; metadata keys are written "
            "metadata.KEY",
        ),
        ([(("title", "x"), "eq", 1)], "unknown field ('title', 'x')"),
        ({"": 1}, "field '' has an empty name in it"),
        ({"metadata.a..b": 1}, "field 'metadata.a..b' has an empty name in it"),
        ({"metadata." + "a." * 32 + "a": 1}, "is a path of more than 32 keys"),
        ({("metadata", "a\0b"): 1}, "has a NUL character"),
        ({"metadata.\ud800": 1}, "has a NUL character or a lone surrogate"),
        ({3: 1}, "a field is a string or a tuple of strings, not a number"),
        ([((), "eq", 1)], "a field is a string or a tuple of strings, not a tuple of 0"),
        (
            [(("metadata", 0), "eq", 1)],
            "a field is a string or a tuple of strings, not a tuple of 2",
        ),
        (
            {"title": {"start_with": "a"}},
            "'title': unknown operator 'start_with'; did you mean starts_with? operators are eq, "
            "ne, gt",
        ),
        (
            {"title": {"author": "a"}},
            "unknown operator 'author'; to compare with an object write {\"eq\": object}; operators "
            "are eq",
        ),
        ({"title": {}}, "'title': unknown operator ''"),
        ([("title", None)], "'title': unknown operator null"),
        ([("title", ["eq"], 1)], "'title': unknown operator a list of 1"),
        ([("title", "eq", 1, 0)], "'title': case_sensitive of eq must be True or False"),
        ({"size": {"gt": True}}, "'size': gt takes a number or a string, not a boolean"),
        ({"size": {"lte": None}}, "'size': lte takes a number or a string, not null"),
        (
            {"size": {"in": 5}},
            "'size': in takes a list of 1 to 1000 strings, numbers or booleans, not a number",
        ),
        ({"size": {"in": []}}, "strings, numbers or booleans, not a list of 0"),
        (
            {"size": {"not_in": [1, None]}},
            "strings, numbers or booleans, not a list of 2 with null",
        ),
        ({"size": {"in": "abc"}}, "'size': in takes a list"),
        ({"title": {"contains": 5}}, "'title': contains takes a string, not a number"),
        ({"title": {"exists": False}}, "'title': exists takes no value (or True), not a boolean"),
        (
            {"title": {"array_contains": None}},
            "array_contains takes a string, a number or a boolean, not null",
        ),
        (
            {"title": {"array_contains": ["a"]}},
            "array_contains takes a string, a number or a boolean, not a list of 1",
        ),
        ({"size": 2**63}, "'size': the value of eq has an integer of more than 64 bits"),
        ({"size": -(2**63) - 1}, "has an integer of more than 64 bits"),
        ({"size": 10**5000}, "has an integer of more than 64 bits"),
        ({"size": 1e999}, "'size': the value of eq has a number that is not finite"),
        ({"size": {"gt": math.nan}}, "'size': the value of gt has a number that is not finite"),
        ({"title": "a\0"}, "'title': the value of eq has a NUL character or a lone surrogate"),
        ({"title": "\udc80"}, "'title': the value of eq has a NUL character or a lone surrogate"),
        ({"title": ["\udc80"]}, "'title': the value of eq has a NUL character or a lone surrogate"),
        (
            [("title", "eq", {"\udc80": 1})],
            "'title': the value of eq has a NUL character or a lone surrogate",
        ),
        ([("title", "eq", {1: 1})], "has an object with a key that is not a string"),
        ({"title": b"a"}, "'title': the value of eq has a bytes, which is not JSON"),
        ({"title": {1, 2}}, "'title': the value of eq has a set, which is not JSON"),
        (
            {"size": {"in": list(range(1001))}},
            "has 1001 members in a list or object; at most 1000 are allowed",
        ),
        ([("size", "exists")] * 33, "where has 33 conditions; at most 32 are allowed"),
        ("title", "where must be a mapping or a list of conditions, not a string"),
        (5, "where must be a mapping or a list of conditions, not a number"),
        (("title", "eq", "a"), "a single condition goes into a list: [(field, operator, value)]"),
        (
            Condition("title", "eq", "a"),
            "a single condition goes into a list: [(field, operator, value)]",
        ),
        ([("title",)], "a condition is a tuple (field, operator, value), not a tuple of 1"),
        (
            [["title", "eq", "a"]],
            "a condition is a tuple (field, operator, value), not a list of 3",
        ),
        ([None], "a condition is a tuple (field, operator, value), not null"),
    ],
)
def test_a_refusal_names_what_is_wrong_and_what_is_allowed(where: Any, expected: str) -> None:
    message = refusal(where)
    assert expected in message
    assert "\n" not in message
    assert filters.problems(where, COLUMNS) == [message]


def test_values_nested_too_deep_or_in_a_circle_are_refused() -> None:
    deep: Any = 1
    for _ in range(32):
        deep = [deep]
    assert filters.problems([("title", "eq", deep)], COLUMNS) == []
    assert filters.problems({"metadata" + ".a" * filters.MAX_DEPTH: 1}, COLUMNS) == []
    assert "is nested more than 32 deep" in refusal([("title", "eq", [deep])])
    circle: list[Any] = []
    circle.append(circle)
    assert "is nested more than 32 deep" in refusal([("title", "eq", circle)])


def test_a_huge_name_is_not_repeated_in_full() -> None:
    assert len(refusal({"x" * 100_000: 1})) < 500
    assert len(refusal({"title": {"x" * 100_000: 1}})) < 500


def test_problems_has_one_message_for_each_invalid_condition() -> None:
    found = filters.problems(
        {"year": 1, "title": {"eq": "a", "in": []}, "metadata.x": {"like": "a"}}, COLUMNS
    )
    assert [message.split(";")[0] for message in found] == [
        "unknown field 'year'",
        "'title': in takes a list of 1 to 1000 strings, numbers or booleans, not a list of 0",
        "'metadata.x': unknown operator 'like'",
    ]
    assert filters.problems({"title": "a", "metadata.x": 1}, COLUMNS) == []


def test_the_greatest_allowed_filter_runs(shelf: Shelf) -> None:
    shelf.fill([("", 0, {"k": 999}), ("", 0, {"k": 1000})])
    assert shelf.select([("metadata.k", "in", list(range(1000)))] * filters.MAX_CONDITIONS) == [0]


# Against a reference implementation.

KEYS = [*"a b A a.b 0 é [0] $ #-1 ' \U0001f600 \x7f \\u0061".split(), "", '"', "\\", '\\"', "a\nb"]
WORDS = [
    *"a A ab 5 5.0 1e1 .5 +5. 10 1x - E+1 true null Straße STRASSE İ % _ * [5] {}".split(),
    *("", " 5", '["a"]', '"', "\\", "'", "\n", "\U0001f600", "\uffff", "0x20", " 1e2 "),
]
NUMBERS = [
    *(0, 1, 5, 10, -1, 5.0, 5.5, 0.1, 10.0, -0.0, 1e16, 1e22, 1e300, 5e-324),
    *(2**53 + 1, 2.0**53, 2**63 - 1, -(2**63)),
]

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
keys = st.sampled_from(KEYS) | text
strings = st.sampled_from(WORDS) | text
integers = st.integers(-(2**63), 2**63 - 1)
numbers = st.sampled_from(NUMBERS) | integers | st.floats(allow_nan=False, allow_infinity=False)
scalars = strings | numbers | st.booleans()
small = st.sampled_from(["a", "A", "5", 5, 5.0, 1, True, None])
values = st.recursive(
    scalars | small | st.none(),
    lambda inner: (
        st.lists(inner | small, max_size=3) | st.dictionaries(keys, inner | small, max_size=3)
    ),
    max_leaves=5,
)
stored = values | st.sampled_from([2**63, 2**64 + 1, 2**70])
documents = st.none() | st.dictionaries(
    keys, stored | st.dictionaries(keys, stored, max_size=3), max_size=4
)

OPERANDS = {
    **dict.fromkeys(("eq", "ne"), values),
    **dict.fromkeys(("gt", "gte", "lt", "lte"), strings | numbers),
    **dict.fromkeys(("in", "not_in"), st.lists(scalars, min_size=1, max_size=4)),
    **dict.fromkeys(("exists", "not_exists", "is_null", "is_not_null"), st.none()),
    **dict.fromkeys(("contains", "starts_with", "ends_with"), strings),
    "array_contains": scalars,
}
VALUELESS = ("exists", "not_exists", "is_null", "is_not_null")


def places(metadata: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(metadata, dict):
        for key, value in metadata.items():
            yield (key,), value
            yield from (((key, *path), inner) for path, inner in places(value))


def aimed(operator: str, value: Any) -> Any:
    """An operand made of a stored value, so that the condition has a chance to match."""
    if operator in ("in", "not_in"):
        return [value]
    return value[0] if operator == "array_contains" and isinstance(value, list) and value else value


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[tuple[Any, Any, Any]], list[Condition]]:
    """Some rows, and conditions that often use paths and values that are in them."""
    sizes = st.none() | integers | st.sampled_from([0, 1, 5, 10])
    rows = draw(st.lists(st.tuples(st.none() | strings, sizes, documents), min_size=1, max_size=5))
    known: list[tuple[Any, Any]] = [
        (name, value) for row in rows for name, value in zip(COLUMNS, row, strict=False)
    ]
    known += [(("metadata", *path), value) for row in rows for path, value in places(row[2])]
    conditions = []
    for _ in range(draw(st.integers(1, 2))):
        field, value = draw(st.sampled_from(known))
        if draw(st.integers(0, 3)) == 0:
            field = ("metadata", *draw(st.lists(keys, min_size=1, max_size=3)))
        operator = draw(st.sampled_from(list(OPERANDS)))
        condition = Condition(field, operator, aimed(operator, value), draw(st.booleans()))
        if draw(st.booleans()) or filters.problems([condition], COLUMNS):
            condition = condition._replace(value=draw(OPERANDS[operator]))
        conditions.append(condition)
    return rows, conditions


@settings(max_examples=scaled(300))
@given(questions())
def test_the_compiled_sql_selects_what_the_reference_selects(
    shelf: Shelf, question: tuple[list[tuple[Any, Any, Any]], list[Condition]]
) -> None:
    rows, conditions = question
    shelf.fill(rows)
    assert shelf.select(conditions) == [
        position
        for position, (title, size, metadata) in enumerate(rows)
        if matches(conditions, {"title": title, "size": size}, metadata)
    ]


def operand(operator: str, value: Any) -> Any:
    if operator in VALUELESS:
        return None
    return [value, "a"] if operator in ("in", "not_in") else value


@pytest.mark.parametrize("operator", list(OPERANDS))
def test_each_operator_agrees_with_the_reference_on_every_pair_of_sample_values(
    shelf: Shelf, operator: str
) -> None:
    beyond = [2**63, 2**70, [2**63 + 1], [-(2**63) - 1]]
    nested = [["a"], ["A", 5], [True], [None], [[5]], {"a": 5.0}, {"b": [1, 2], "a": 1}]
    values = [*ZOO[:-1], *WORDS, *NUMBERS, *beyond, *nested, {"a": 1.0, "b": [1, 2]}]
    rows = [(None, None, {"k": value}) for value in values] + [(None, None, {}), ("", 0, None)]
    rows += [(text, size, None) for text, size in [("10", 10), ("Ten", 5), ("tEN", -1)]]
    shelf.fill(rows)
    # Of columns fewer are asked for: they have the same operators.
    wanted = {"metadata.k": values, "title": ["10", 10, "TEN"], "size": [10.0, "10", 5]}
    asked = 0
    for condition in (
        Condition(field, operator, operand(operator, value), case)
        for field, some in wanted.items()
        for value in (some[:1] if operator in VALUELESS else some)
        for case in (True, False)
    ):
        if not filters.problems([condition], COLUMNS):
            asked += 1
            expected = [
                position
                for position, (title, size, metadata) in enumerate(rows)
                if matches([condition], {"title": title, "size": size}, metadata)
            ]
            assert shelf.select([condition]) == expected, condition
    assert asked >= 2


@given(st.lists(text, min_size=1, max_size=3), st.lists(text, min_size=1, max_size=3))
@example(["a"], ['a" OR 1=1 --'])
@example(['"'], ['\\"'])
@example(["a"], ["\\u0061"])
@example([""], ["", ""])
def test_any_string_is_a_key_and_finds_only_itself(
    shelf: Shelf, path: list[str], other: list[str]
) -> None:
    metadata: Any = "here"
    for key in reversed(path):
        metadata = {key: metadata}
    shelf.fill([("", 0, metadata)])
    assert shelf.select([(("metadata", *path), "eq", "here")]) == [0]
    assert shelf.select([(("metadata", *other), "eq", "here")]) == ([0] if other == path else [])


@pytest.mark.parametrize(
    "attack",
    [
        "' OR '1'='1",
        "x') OR 1=1; DROP TABLE items; --",
        '$."secret"',
        "?",
        "{value}",
        "[a-z]*",
        "') UNION SELECT 1 --",
        'k" : "v',
        "k[#-1]",
    ],
)
def test_an_injection_selects_nothing_and_breaks_nothing(shelf: Shelf, attack: str) -> None:
    shelf.fill([("public", 1, {"secret": "s", "k": ["v"]}), ("x", 2, None)])
    for operator in ("eq", "contains", "starts_with", "ends_with", "array_contains", "in"):
        value = [attack] if operator == "in" else attack
        for case_sensitive in (True, False):
            assert shelf.select([("metadata.secret", operator, value, case_sensitive)]) == []
            assert shelf.select([("title", operator, value, case_sensitive)]) == []
    for operator in ("exists", "is_not_null", "is_null"):
        assert shelf.select([(("metadata", attack), operator)]) == []
    for field in (attack, ("title", attack), (attack, "secret")):
        assert refusal([(field, "eq", "s")]).startswith("unknown field")
    assert refusal([("title", attack, "s")]).startswith("'title': unknown operator")
    sql, _ = shelf.compile(filters.conditions([(("metadata", attack * 9), "eq", attack * 9)]))
    assert attack * 9 not in sql


names = st.sampled_from([*filters.OPERATORS, *COLUMNS, "metadata.a", "x"])
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=2)
    | names
    | st.sampled_from(["\ud800", 2**63]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(names | st.just(1), inner, max_size=3)
    ),
    max_leaves=8,
)
tuples = st.tuples(
    st.sampled_from(["title", "metadata.a"]), st.sampled_from(list(OPERANDS)), anything
)


@given(anything | st.lists(tuples))
def test_any_input_runs_or_is_refused_as_an_invalid_filter(shelf: Shelf, where: Any) -> None:
    shelf.fill([("a", 1, {"a": [1, "x"]}), (None, None, None)])
    found = filters.problems(where, COLUMNS)
    try:
        shelf.select(where)
    except InvalidFilter as error:
        assert str(error) in found
    else:
        assert found == []


# Columns hold one kind of value.

KINDS: filters.Kinds = {"title": "text", "size": "number", "created_at": "time"}
TYPED = {"title": "v.title", "size": "v.size", "created_at": "v.created_at"}
TIMES = [
    "2025-12-31T23:59:59.999999+00:00",
    "2026-10-31T23:59:59+00:00",
    "2026-11-01T00:00:00+00:00",
    "2026-11-30T23:59:59.999999+00:00",
    "2026-12-01T00:00:00.000000+00:00",
    None,
]


def of_kind(shelf: Shelf, column: str, values: list[Any], *condition: Any) -> list[int]:
    """Positions of the values of a column that a condition selects."""
    return shelf.select_typed(column, values, filters.conditions([(column, *condition)], KINDS))


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("eq", "2026-11", [2, 3]),
        ("ne", "2026-11", [0, 1, 4]),
        ("gt", "2026-11", [4]),
        ("gte", "2026-11", [2, 3, 4]),
        ("lt", "2026-11", [0, 1]),
        ("lte", "2026-11", [0, 1, 2, 3]),
        ("eq", "2026", [1, 2, 3, 4]),
        ("eq", 2026, [1, 2, 3, 4]),
        ("eq", "2026-11-01T00:00:00+00:00", [2]),
        ("in", ["2025", "2026-12-01"], [0, 4]),
        ("not_in", ["2025", "2026-12-01"], [1, 2, 3]),
        ("gt", "100y", [0, 1, 2, 3, 4]),
        ("lt", "100y", []),
        ("lte", "9999", [0, 1, 2, 3, 4]),
        ("starts_with", "2026-1", [1, 2, 3, 4]),
        ("exists", None, [0, 1, 2, 3, 4]),
        ("not_exists", None, [5]),
        ("eq", None, [5]),
    ],
)
def test_a_time_is_compared_with_the_period_that_a_value_names(
    shelf: Shelf, operator: str, value: Any, expected: list[int]
) -> None:
    assert of_kind(shelf, "created_at", TIMES, operator, value) == expected
    assert of_kind(shelf, "created_at", TIMES, operator, value, False) == expected


def test_a_thousand_periods_are_compared(shelf: Shelf) -> None:
    years = [str(year) for year in range(1027, 2027)]
    assert of_kind(shelf, "created_at", TIMES, "in", years) == [0, 1, 2, 3, 4]


def test_today_and_ages_are_counted_from_now(shelf: Shelf) -> None:
    from mcpvectordb import dates

    times = [dates.now(), "2001-01-01T00:00:00+00:00"]
    assert of_kind(shelf, "created_at", times, "gt", "yesterday") == [0]
    assert of_kind(shelf, "created_at", times, "gt", "7d") == [0]
    assert of_kind(shelf, "created_at", times, "lt", "7d") == [1]


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("gt", "5", [1]),
        ("eq", " 5.0 ", [0]),
        ("in", ["5", 7], [0]),
        ("contains", "1", [1]),
    ],
)
def test_a_string_that_is_a_number_is_one_to_a_column_of_numbers(
    shelf: Shelf, operator: str, value: Any, expected: list[int]
) -> None:
    assert of_kind(shelf, "size", [5, 10], operator, value) == expected


def test_a_number_is_compared_with_texts_as_it_is_written(shelf: Shelf) -> None:
    assert of_kind(shelf, "title", ["2024", "2024.0", "x"], "eq", 2024) == [0]
    assert of_kind(shelf, "title", ["2024", "true", "x"], "ne", True) == [0, 2]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (("size", "gt", "abc"), "'size': gt takes a number, not 'abc'"),
        (("size", "eq", True), "'size': eq takes a number, not a boolean"),
        (("size", "eq", "NaN"), "'size': eq takes a number, not 'NaN'"),
        (("size", "eq", "1" * 30), f"'size': eq takes a number, not '{'1' * 30}'"),
        (("size", "in", [1, "x"]), "'size': in takes a number, not 'x'"),
        (("size", "eq", [1]), "'size': eq takes a number, not a list of 1"),
        (("title", "eq", {"a": 1}), "'title': eq takes a string, not an object"),
        (("title", "array_contains", "a"), "'title': array_contains is for lists in metadata"),
        (
            ("created_at", "eq", "7d"),
            "'created_at': '7d' is a moment, which eq cannot be asked for; use gt or lt",
        ),
    ],
)
def test_a_value_that_a_column_cannot_hold_is_refused(
    condition: tuple[Any, ...], message: str
) -> None:
    assert filters.problems([condition], TYPED, KINDS) == [message]
    with pytest.raises(InvalidFilter):
        filters.conditions([condition], KINDS)


@pytest.mark.parametrize("value", ["abc", "2026-13-45", "", True, 1.5, [], "tomorrow"])
@pytest.mark.parametrize("operator", ["eq", "gt"])
def test_what_is_no_time_is_refused_with_what_would_be_one(operator: str, value: Any) -> None:
    [message] = filters.problems([("created_at", operator, value)], TYPED, KINDS)
    assert "'created_at'" in message
    assert operator in message or "must be a date or time such as 2025-11-29, 2025-11" in message


def test_metadata_stays_free() -> None:
    where = {"metadata.size": {"gt": "abc"}, "metadata.created_at": "yesterday"}
    assert filters.conditions(where, KINDS) == filters.conditions(where)
