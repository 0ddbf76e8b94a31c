"""What the surface openrag must do; see requirements_mcpvectordb.py for what the columns mean."""

from __future__ import annotations

from tests.server.requirements_mcpvectordb import Requirement

REQUIREMENTS = (
    Requirement(
        "OR-001",
        "five tools with exactly the specified parameters, types, defaults and required ones",
        "Tool Specifications",
    ),
    Requirement(
        "OR-002",
        "all four annotations: ingest not idempotent, delete destructive, the others read-only",
        "settled",
    ),
    Requirement("OR-003", "--read-only offers query, list and stats alone", "settled"),
    Requirement(
        "OR-004", "instructions say that text out of documents is data, not orders", "settled"
    ),
    Requirement(
        "OR-005", "the specification's example calls run as they are written", "Example Usage"
    ),
    Requirement(
        "OR-006",
        "beside mcpvectordb, list_documents and delete_document become openrag_…",
        "settled",
    ),
    Requirement(
        "OR-010",
        "ingest_document answers exactly status, document_id, filename, file_size, chunk_count, "
        "message",
        "ingest_document",
    ),
    Requirement(
        "OR-011", "a missing file is file_not_found: File does not exist: PATH", "ingest_document"
    ),
    Requirement("OR-012", "a folder is file_not_found", "settled"),
    Requirement(
        "OR-013",
        "another suffix is invalid_file_type: Only .txt files are supported; .TXT is one",
        "ingest_document",
    ),
    Requirement(
        "OR-014",
        "above max_source_bytes is file_too_large",
        "ingest_document",
        "the limit is that of the whole server, 100 MB unless configured",
    ),
    Requirement("OR-015", "what is not UTF-8 is encoding_error", "ingest_document"),
    Requirement(
        "OR-016", "checks come in the order: there, a file, suffix, size, encoding", "settled"
    ),
    Requirement("OR-017", "an empty or blank file is ingestion_failed", "settled"),
    Requirement("OR-018", "the same file twice is two documents", "settled"),
    Requirement(
        "OR-019",
        "chunks have 400 tokens at most and repeat up to 60",
        "ingest_document",
        "counted in the embedding model's own tokens",
    ),
    Requirement(
        "OR-020", "content is the file's text, whatever format it looks like", "ingest_document"
    ),
    Requirement(
        "OR-021",
        "secrets, the database and files outside of --root are refused before anything is told of "
        "them",
        "settled",
    ),
    Requirement("OR-022", "a URL is no file, and is not fetched", "settled"),
    Requirement(
        "OR-023",
        "paths with .. are resolved, ~ is expanded",
        "settled",
        "the program behind it rejects ..",
    ),
    Requirement(
        "OR-024",
        "without a model the text is stored, and the message says that it waits",
        "settled",
    ),
    Requirement(
        "OR-025",
        "the sizes of openrag's chunks are not those of other documents in the file",
        "settled",
    ),
    Requirement(
        "OR-030",
        "query_documents answers exactly status, query (trimmed), total_results and results",
        "query_documents",
    ),
    Requirement(
        "OR-031",
        "result items have exactly the six keys; chunk_index counts from 0",
        "query_documents",
    ),
    Requirement("OR-032", "chunk_id is a UUID, the same each time", "query_documents"),
    Requirement(
        "OR-033",
        "similarity_score is the cosine cut to 0…1, 4 decimals, highest first",
        "query_documents",
    ),
    Requirement(
        "OR-034",
        "min_similarity (0.1) cuts what is below it after the best max_results were taken",
        "query_documents",
    ),
    Requirement(
        "OR-035",
        "a blank query is empty_query, before anything else is looked at",
        "query_documents",
    ),
    Requirement("OR-036", "nothing ingested is empty_collection", "query_documents"),
    Requirement(
        "OR-037",
        "no hits is a success with message: No results found matching the query",
        "query_documents",
    ),
    Requirement(
        "OR-038",
        "max_results 1 to 100, min_similarity 0 to 1, query up to 1000 characters; else "
        "validation_error",
        "query_documents",
    ),
    Requirement(
        "OR-039", "what other surfaces ingested is found, listed and deleted too", "settled"
    ),
    Requirement("OR-040", "quotes and hyphens in a query bind nothing", "settled"),
    Requirement(
        "OR-041", "a query that cannot be embedded is tool_execution_failed and says why", "settled"
    ),
    Requirement(
        "OR-050",
        "list_documents answers exactly status, total_documents, documents; items have the six "
        "keys",
        "list_documents",
    ),
    Requirement(
        "OR-051",
        "in the order of their ingestion; created_at is ISO 8601 ending in Z",
        "list_documents",
    ),
    Requirement(
        "OR-052",
        "an empty list is a success with message: No documents have been ingested yet",
        "list_documents",
    ),
    Requirement(
        "OR-053",
        "status is completed, or pending while chunks wait for their embedding",
        "list_documents",
    ),
    Requirement(
        "OR-060",
        "delete_document answers exactly status, document_id, chunks_deleted and message",
        "delete_document",
    ),
    Requirement(
        "OR-061", "an unknown id is document_not_found: Document not found: ID", "delete_document"
    ),
    Requirement(
        "OR-062",
        "what is no UUID is invalid_document_id: Invalid document ID format",
        "delete_document",
    ),
    Requirement("OR-063", "ids are trimmed", "settled"),
    Requirement(
        "OR-070",
        "get_stats answers status and the seven statistics; chunk_size 400, chunk_overlap 60",
        "get_stats",
    ),
    Requirement(
        "OR-071", "model and dimension are the real ones, also before the first ingest", "get_stats"
    ),
    Requirement("OR-072", "storage_path is absolute", "get_stats"),
    Requirement(
        "OR-080",
        "every failure is {status: error, error: code, message: text}, isError false, never an "
        "exception",
        "Error Handling",
    ),
    Requirement("OR-081", "missing arguments and wrong types are validation_error", "settled"),
    Requirement(
        "OR-082", "a defect is tool_execution_failed without details", "Error Codes Reference"
    ),
    Requirement("OR-083", "true, 2.5 and 'many' are not integers; 5.0 is one", "settled"),
    Requirement("OR-084", "unknown arguments are ignored", "settled"),
    Requirement(
        "OR-085",
        "replies are bounded and say what is missing",
        "settled",
        "additional key truncated",
    ),
    Requirement("OR-086", "replies fit the published output schema, failures too", "settled"),
    Requirement(
        "OR-087",
        "replies to searches and listings say how many passages wait for their embedding",
        "settled",
        "additional text in message",
    ),
    Requirement(
        "OR-088",
        "an ingest replies within ten seconds; what is not embedded by then is found by words",
        "settled",
        "additional text in message; a source that is still being read is an error that says so",
    ),
    Requirement(
        "OR-089",
        "unknown arguments are accepted and named in the reply, with what was meant",
        "settled",
        "additional key note",
    ),
)
