"""The requirements of the surface vector_store; requirements_mcpvectordb.py has the columns."""

from __future__ import annotations

from tests.server.requirements_mcpvectordb import Requirement

REQUIREMENTS = (
    Requirement(
        "VS-001",
        "four tools with exactly the specified parameters, types, defaults and required ones",
        "Tools",
    ),
    Requirement(
        "VS-002",
        "all four annotations: search and count read-only, add and delete destructive",
        "settled",
    ),
    Requirement("VS-003", "--read-only offers search and count alone", "settled"),
    Requirement("VS-004", "instructions say that metadata is data, not orders", "settled"),
    Requirement("VS-005", "the specification's examples run as they are written", "Usage Examples"),
    Requirement(
        "VS-010",
        "vector_add answers exactly status, id and dimension; status is added or updated",
        "vector_add",
    ),
    Requirement(
        "VS-011",
        "an existing id in the same store and namespace is overwritten wholly, metadata too",
        "vector_add",
    ),
    Requirement("VS-012", "adding the same again leaves the same state", "vector_add"),
    Requirement(
        "VS-013",
        "a bad embedding is exactly 'Embedding must be a non-empty array of numbers'",
        "vector_add",
    ),
    Requirement(
        "VS-014",
        "NaN, infinities, booleans and numbers written as text are bad embeddings",
        "settled",
    ),
    Requirement("VS-015", "a missing or blank id is an error", "settled"),
    Requirement("VS-016", "ids are kept as given, not trimmed", "settled"),
    Requirement(
        "VS-017",
        "metadata is any object, kept as it is; absent metadata comes back as {}",
        "vector_add",
    ),
    Requirement("VS-018", "several dimensions may share a store", "General Considerations"),
    Requirement(
        "VS-019",
        "a store is made by its first vector, and lasts",
        "General Considerations",
        "the default store is kept in the file too; open :memory: for one that is not",
    ),
    Requirement(
        "VS-020",
        "vector_search answers exactly results (id, score, metadata) and total_searched",
        "vector_search",
    ),
    Requirement(
        "VS-021",
        "by cosine, highest first, -1 to 1; the same vector scores 1.0",
        "General Considerations",
    ),
    Requirement(
        "VS-022",
        "stores made with dot rank highest first, with euclidean lowest first",
        "General Considerations",
    ),
    Requirement(
        "VS-023",
        "a bad query is exactly 'Query embedding must be a non-empty array'",
        "vector_search",
    ),
    Requirement(
        "VS-024",
        "vectors of another dimension come last with score 0; where distances rank they are left "
        "out",
        "settled",
    ),
    Requirement("VS-025", "a zero vector scores 0.0", "settled"),
    Requirement("VS-026", "equal scores keep the order in which they were added", "settled"),
    Requirement(
        "VS-027", "k is 10; larger than the store gives all; 0 and less gives none", "vector_search"
    ),
    Requirement(
        "VS-028",
        "every pair of metadata_filter must be equal; a missing key does not match",
        "vector_search",
    ),
    Requirement("VS-029", "filter keys are literal: a.b is a key, not a path", "settled"),
    Requirement("VS-030", "total_searched counts after the filter", "vector_search"),
    Requirement(
        "VS-031",
        "an empty or unknown store gives [] and 0, and is not made by asking",
        "vector_search",
    ),
    Requirement(
        "VS-032",
        "scores are numbers that JSON has, however large or small the embeddings",
        "settled",
    ),
    Requirement("VS-033", "embeddings are not returned", "vector_search"),
    Requirement("VS-040", "vector_delete answers exactly deleted and id", "vector_delete"),
    Requirement(
        "VS-041", "an id that is not there gives deleted false and no error", "vector_delete"
    ),
    Requirement(
        "VS-042", "the same id in another namespace or store is not touched", "vector_delete"
    ),
    Requirement(
        "VS-050",
        "vector_count answers exactly count and store_name; unknown stores have 0",
        "vector_count",
    ),
    Requirement(
        "VS-051",
        "search and count without a namespace cover the store, add and delete the unnamed "
        "namespace",
        "settled",
    ),
    Requirement(
        "VS-060",
        "every failure is {error: text} without other keys, isError false, never an exception",
        "settled",
    ),
    Requirement("VS-061", "missing arguments and wrong types are that error too", "settled"),
    Requirement("VS-062", "a defect is told without details", "settled"),
    Requirement("VS-063", "true, 2.5 and 'many' are not integers; 5.0 is one", "settled"),
    Requirement(
        "VS-064",
        "arrays and objects sent as JSON strings are accepted, also twice encoded",
        "settled",
    ),
    Requirement("VS-065", "unknown arguments are ignored", "settled"),
    Requirement(
        "VS-066",
        "replies are bounded and say what is missing",
        "settled",
        "additional key truncated",
    ),
    Requirement("VS-067", "replies fit the published output schema, failures too", "settled"),
    Requirement(
        "VS-068",
        "unknown arguments are accepted and named in the reply, with what was meant",
        "settled",
        "additional key note",
    ),
)
