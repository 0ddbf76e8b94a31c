"""The requirements of the surface mcpvectordb: one row per behaviour, with at least one test each.

`source` is the section of the specification (or "settled" for what it leaves open and we decided);
`divergence` says in which way we knowingly differ from the text or from the program behind it, ""
where we do not.
"""

from __future__ import annotations

from typing import NamedTuple


class Requirement(NamedTuple):
    id: str
    behaviour: str
    source: str
    divergence: str = ""


REQUIREMENTS = (
    Requirement(
        "MV-001",
        "the server is called mcpvectordb and names surface version 0.2.0 beside its own",
        "Server Info",
    ),
    Requirement(
        "MV-002",
        "seven tools with exactly the specified parameters, types, defaults and required ones",
        "Tools",
        "search also takes min_relevance",
    ),
    Requirement(
        "MV-003",
        "all four annotations: reading tools read-only, delete destructive and idempotent",
        "settled",
    ),
    Requirement(
        "MV-004",
        "transports stdio (default) and sse",
        "Server Info",
        "streamable-http is the one we document",
    ),
    Requirement(
        "MV-005", "instructions say that text out of documents is data, not orders", "settled"
    ),
    Requirement(
        "MV-010",
        "ingest_file answers status, doc_id (UUID), source, library and chunk_count",
        "ingest_file",
    ),
    Requirement(
        "MV-011",
        "path may be relative or begin with ~; source is the resolved absolute path",
        "ingest_file",
    ),
    Requirement(
        "MV-012",
        "the same bytes again are skipped: existing doc_id, chunk_count 0, nothing written",
        "ingest_file",
    ),
    Requirement(
        "MV-013", "changed bytes replace the old document under a new doc_id", "ingest_file"
    ),
    Requirement(
        "MV-014",
        "a failed re-ingest leaves the old document in place",
        "settled",
        "the program behind it deletes first",
    ),
    Requirement(
        "MV-015", "the same file in two libraries is two independent documents", "ingest_file"
    ),
    Requirement("MV-016", "content_hash is the SHA-256 of the raw bytes", "list_documents"),
    Requirement(
        "MV-017",
        "missing, unreadable or a folder: error that names the path and the working folder",
        "settled",
    ),
    Requirement(
        "MV-018", "an unsupported extension's error begins with 'Unsupported format'", "settled"
    ),
    Requirement("MV-019", "other failures of an ingest begin with 'Ingestion failed'", "settled"),
    Requirement(
        "MV-020", "no extractable text: error that suggests supplying the text directly", "settled"
    ),
    Requirement("MV-021", "a text shorter than a chunk is indexed as one chunk", "settled"),
    Requirement(
        "MV-022",
        "file_type is the extension in lower case or 'unknown'; last_modified is ISO UTC",
        "search",
    ),
    Requirement("MV-023", "title is the first heading, else the last path component", "settled"),
    Requirement(
        "MV-024", "metadata is kept and returned as given; an object or null", "ingest_file"
    ),
    Requirement(
        "MV-025", "source code is not among the formats", "settled", "the command line reads it"
    ),
    Requirement(
        "MV-026", "secrets, the database itself and files outside of --root are refused", "settled"
    ),
    Requirement(
        "MV-027", "a URL is not a path: ingest_file refuses it and names ingest_url", "settled"
    ),
    Requirement("MV-028", "DOCX and XML are among the formats", "settled"),
    Requirement(
        "MV-030", "ingest_url wants http or https, checked before any network call", "ingest_url"
    ),
    Requirement(
        "MV-031",
        "ingest_url is keyed on (url, library): skipped, replaced, indexed as ingest_file",
        "ingest_url",
    ),
    Requirement(
        "MV-032",
        "file_type is 'url'; last_modified is the Last-Modified header as ISO, '' without one",
        "ingest_url",
    ),
    Requirement(
        "MV-033",
        "a status that is not 2xx is an error with the code; a network failure is an error",
        "settled",
    ),
    Requirement(
        "MV-034", "addresses of this machine and of private networks are refused", "settled"
    ),
    Requirement(
        "MV-040",
        "result items have the ten specified keys; page is 0 where unknown",
        "search",
        "an eleventh key, relevance",
    ),
    Requirement("MV-041", "top_k is 1 to 100, default 5; outside of it is an error", "search"),
    Requirement("MV-042", "a blank query is an error", "settled"),
    Requirement(
        "MV-043",
        "library null searches all; an unknown library finds nothing and is no error",
        "search",
    ),
    Requirement(
        "MV-044",
        "filter: all conditions by equality, strings exact, integers numeric; {} filters nothing",
        "search",
    ),
    Requirement(
        "MV-045",
        "a key that is no identifier is 'Invalid filter key'; an unknown field is an error",
        "search",
    ),
    Requirement("MV-046", "library argument and filter.library both apply", "search"),
    Requirement("MV-047", "quotes and wildcards in filter values are harmless", "settled"),
    Requirement(
        "MV-048",
        "every field of a chunk record can be filtered by",
        "search",
        "id is doc_id:chunk_index; content is compared within the best 1,000 chunks",
    ),
    Requirement("MV-049", 'an empty index answers {"results": []}', "settled"),
    Requirement("MV-050", "stop words, punctuation and operators alone never fail", "settled"),
    Requirement("MV-051", "an exact code comes first, before near-identical siblings", "settled"),
    Requirement(
        "MV-052", "with ten documents top_k=100 returns all ten: no relevance floor", "settled"
    ),
    Requirement(
        "MV-053",
        "the reply says when it could search by words only",
        "settled",
        "an additional key, note",
    ),
    Requirement(
        "MV-054",
        "the reply says when nothing relevant was found; min_relevance leaves out what is less "
        "likely to be",
        "settled",
        "the sentence is in the additional key note",
    ),
    Requirement(
        "MV-060", "list_documents items have exactly the eight keys, newest first", "list_documents"
    ),
    Requirement(
        "MV-061",
        "limit 1 to 1000 (20), offset from 0 (0), else an error; count is this page's",
        "list_documents",
    ),
    Requirement(
        "MV-062",
        "list_libraries counts documents and chunks; empty libraries do not exist",
        "list_libraries",
    ),
    Requirement(
        "MV-063",
        "delete_document answers deleted with the number of chunks; unknown ids give 0",
        "delete_document",
    ),
    Requirement("MV-064", "a blank doc_id is an error", "settled"),
    Requirement(
        "MV-065",
        "get_document returns the stored text once and exactly, with seven keys",
        "get_document",
        "the program behind it repeats overlaps",
    ),
    Requirement("MV-066", "an unknown id is an error containing 'not found'", "settled"),
    Requirement(
        "MV-070",
        "every failure is {status: error, error: text}, with isError false, never an exception",
        "Error Response",
    ),
    Requirement("MV-071", "missing arguments and wrong types are that error too", "Error Response"),
    Requirement(
        "MV-072", "a defect is 'Internal error' without paths, SQL or traceback", "Error Response"
    ),
    Requirement("MV-073", "true, 2.5 and 'many' are not integers; 5.0 is one", "settled"),
    Requirement(
        "MV-074", "objects sent as JSON strings are accepted, also twice encoded", "settled"
    ),
    Requirement("MV-075", "unknown arguments are ignored", "settled"),
    Requirement(
        "MV-076",
        "replies are bounded, say what is missing and how to get it",
        "settled",
        "additional key truncated; get_document takes doc_id#offset",
    ),
    Requirement("MV-077", "--read-only offers only tools that change nothing", "settled"),
    Requirement(
        "MV-079",
        "long ingests report progress and can be cancelled between steps; the file stays sound",
        "settled",
    ),
    Requirement(
        "MV-078", "replies fit the published output schema, failures too", "Error Response"
    ),
    Requirement(
        "MV-080",
        "replies to searches and listings say how many passages wait for their embedding",
        "settled",
        "additional key note",
    ),
    Requirement(
        "MV-081",
        "an ingest replies within ten seconds; what is not embedded by then is found by words",
        "settled",
        "additional key note; a source that is still being read is an error that says so",
    ),
    Requirement(
        "MV-082",
        "unknown arguments are accepted and named in the reply, with what was meant",
        "settled",
        "additional key note",
    ),
)
