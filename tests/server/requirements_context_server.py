"""The requirements of the surface context_server; requirements_mcpvectordb.py has the columns."""

from __future__ import annotations

from tests.server.requirements_mcpvectordb import Requirement

REQUIREMENTS = (
    Requirement(
        "CS-001",
        "thirteen tools with exactly the specified parameters, defaults and required ones",
        "Introduction",
    ),
    Requirement(
        "CS-002",
        "reading tools read-only, store harmless, update destructive, delete destructive and "
        "idempotent",
        "settled",
    ),
    Requirement(
        "CS-003",
        "bounds are in the published schema: limit 1-100, offset >= 0, lengths >= 1, batches "
        "1-100, enums",
        "settled",
    ),
    Requirement("CS-004", "--read-only offers the seven reading tools alone", "settled"),
    Requirement(
        "CS-005", "instructions say that text out of entries is data, not orders", "settled"
    ),
    Requirement(
        "CS-006", "the specification's example calls run as they are written", "API Reference"
    ),
    Requirement(
        "CS-007",
        "every failure is isError with one text, schema failures too; no protocol error",
        "settled",
    ),
    Requirement(
        "CS-008",
        "text content equals structured content, and both fit the published output schema",
        "settled",
        "a list is the text; as structured content, which must be an object, it is {result: list}",
    ),
    Requirement(
        "CS-009",
        "arrays and objects sent as JSON strings are accepted, in batches too; unknown arguments "
        "ignored",
        "settled",
    ),
    Requirement("CS-010", "a defect is told without paths, SQL or traceback", "settled"),
    Requirement(
        "CS-011",
        "replies are bounded and say how to get the rest",
        "settled",
        "additional key truncated",
    ),
    Requirement(
        "CS-020",
        "store_context answers exactly success, context_id, thread_id and message",
        "store_context",
    ),
    Requirement("CS-021", "ids are positive whole numbers and never reused", "settled"),
    Requirement(
        "CS-022",
        "thread_id and text are trimmed; blank ones are errors; inner newlines stay",
        "settled",
    ),
    Requirement("CS-023", "source is user or agent", "store_context"),
    Requirement(
        "CS-024",
        "tags are trimmed, lower-cased, unique, sorted; blank ones dropped",
        "store_context",
        "the program behind it keeps duplicates",
    ),
    Requirement(
        "CS-025",
        "metadata is any JSON object and comes back as given; {} is stored as null",
        "store_context",
    ),
    Requirement(
        "CS-026",
        "images: base64 in and out, in order, mime_type image/png unless given, metadata kept",
        "store_context",
    ),
    Requirement(
        "CS-027",
        "an image without data, with bad base64 or above a limit is an error with its index",
        "settled",
    ),
    Requirement(
        "CS-028",
        "the latest text of a thread said again by its source keeps its id; what is given replaces",
        "settled",
        "the program behind it appends tags and images, and ignores metadata",
    ),
    Requirement(
        "CS-029",
        "A, B, A are three entries; another source in between prevents the merging",
        "settled",
    ),
    Requirement(
        "CS-030",
        "the message says stored or updated, the number of images, and that an embedding was made",
        "settled",
    ),
    Requirement(
        "CS-031",
        "when embedding fails nothing is stored or changed; where no model is, the message says so",
        "settled",
        "without a model the entry is stored and found by words",
    ),
    Requirement(
        "CS-040",
        "search_context: newest first; all filters together; tags by any; limit 30, offset 0",
        "search_context",
    ),
    Requirement(
        "CS-041",
        "its entries have exactly the specified fields, is_truncated among them",
        "Response Structure",
    ),
    Requirement(
        "CS-042",
        "text above 150 characters is cut at a space beyond 105, plus ...; 150 stay whole",
        "settled",
    ),
    Requirement(
        "CS-043",
        "images only with include_images and where there are any",
        "search_context",
        "what is too long for the reply of a search is left to get_context_by_ids, and says so",
    ),
    Requirement(
        "CS-044",
        "stats only with explain_query: time, filters, rows, backend, SQLite's real plan",
        "search_context",
    ),
    Requirement(
        "CS-045",
        "filters_applied counts metadata filters here, and all filters in the other searches",
        "settled",
    ),
    Requirement(
        "CS-046",
        "get_context_by_ids: a plain list of whole entries, newest first, unknown ids missing",
        "get_context_by_ids",
    ),
    Requirement(
        "CS-047",
        "list_threads: the seven fields and total_threads, newest activity first",
        "list_threads",
    ),
    Requirement(
        "CS-048",
        "get_statistics: counts, sizes, the most used, and which searches are available",
        "get_statistics",
    ),
    Requirement(
        "CS-050",
        "simple metadata: equality, case- and type-sensitive, dotted keys descend",
        "Metadata Filtering",
    ),
    Requirement(
        "CS-051",
        "all sixteen operators, default eq, case-insensitive by default",
        "Metadata Filtering",
    ),
    Requirement(
        "CS-052",
        "case_sensitive true tells case apart; folding is Unicode's",
        "Metadata Filtering",
        "the program behind it folds ASCII only",
    ),
    Requirement("CS-053", "operators without a value drop any that is sent", "settled"),
    Requirement(
        "CS-054",
        "bad filters: a normal result with error and one message for each, and the tool's header",
        "settled",
        "hybrid raises in the program behind it",
    ),
    Requirement(
        "CS-055",
        "keys of other characters than letters, digits, _ . - are a validation error, in simple "
        "filters too",
        "settled",
    ),
    Requirement(
        "CS-056",
        "% and _ are themselves; missing keys match neither ne nor not_in; null exists not",
        "settled",
        "the program behind it takes them for wildcards",
    ),
    Requirement(
        "CS-060",
        "dates in all four forms; both ends included; a date as the end is the whole day",
        "Date Filtering",
    ),
    Requirement(
        "CS-061",
        "another date is an error that names start_date or end_date; so is a start after the end",
        "settled",
    ),
    Requirement("CS-062", "what created_at returns is accepted as a date", "settled"),
    Requirement("CS-063", "naive times are UTC, offsets are converted", "Date Filtering"),
    Requirement(
        "CS-070",
        "update_context answers success, context_id, updated_fields and message",
        "update_context",
    ),
    Requirement(
        "CS-071",
        "only what is given changes; thread, source and created_at stay; updated_at moves",
        "update_context",
    ),
    Requirement(
        "CS-072", "metadata_patch is RFC 7396; an empty one is an update", "update_context"
    ),
    Requirement(
        "CS-073",
        "nothing given, metadata with a patch, blank text and unknown ids are errors",
        "update_context",
    ),
    Requirement(
        "CS-074",
        "content_type follows the images; [] removes tags and images; metadata {} replaces",
        "update_context",
    ),
    Requirement(
        "CS-080",
        "delete_context: by ids or thread, ids win; neither is an error; unknown counts 0",
        "delete_context",
    ),
    Requirement("CS-081", "deleting takes tags, images and embeddings along", "delete_context"),
    Requirement(
        "CS-090",
        "semantic_search_context: query, results, count, model; whole texts",
        "semantic_search_context",
    ),
    Requirement(
        "CS-091",
        "its scores: semantic_distance (L2, low is near), semantic_rank null",
        "Scores Object Structure",
    ),
    Requirement(
        "CS-092",
        "filters apply before the ranking: never fewer than limit when enough match",
        "settled",
    ),
    Requirement(
        "CS-093", "where no model is to be had it is an error that says what to do", "settled"
    ),
    Requirement("CS-094", "blank queries are errors; an empty store gives no results", "settled"),
    Requirement(
        "CS-100", "fts_search_context: query, mode, results, count, language", "fts_search_context"
    ),
    Requirement(
        "CS-101",
        "its scores: fts_score (higher is better), fts_rank null",
        "Scores Object Structure",
    ),
    Requirement(
        "CS-102", "match: all words by their stems; any when none has all", "fts_search_context"
    ),
    Requirement("CS-103", "prefix, phrase and boolean as specified", "fts_search_context"),
    Requirement(
        "CS-104",
        "no query fails: a malformed boolean one is read as its words, and note says so",
        "settled",
        "additional key note",
    ),
    Requirement(
        "CS-105",
        "highlighted is the whole text with <mark>, there only with highlight",
        "Response Structure",
    ),
    Requirement(
        "CS-110",
        "hybrid_search_context: the seven header fields; scores with all six keys",
        "hybrid_search_context",
    ),
    Requirement(
        "CS-111", "rrf is the sum of 1 / (rrf_k + rank) over the modes", "hybrid_search_context"
    ),
    Requirement(
        "CS-112", "search_modes_used names the modes that ran; counts are of each", "settled"
    ),
    Requirement("CS-113", "a single mode through the same interface", "hybrid_search_context"),
    Requirement(
        "CS-114",
        "without a model it answers by words and says so; when no mode ran it is an error",
        "settled",
    ),
    Requirement("CS-115", "stats: time, fts_stats, semantic_stats, fusion_stats", "settled"),
    Requirement("CS-116", "a long question finds by words what has some of them", "settled"),
    Requirement(
        "CS-120",
        "reranking, where installed, orders by rerank_score, which is then in scores",
        "Scores Breakdown",
        "at most 40 entries are read",
    ),
    Requirement("CS-121", "a reranker that fails leaves the order, without an error", "settled"),
    Requirement("CS-122", "rerank_contexts = false turns it off", "Scores Breakdown"),
    Requirement(
        "CS-130",
        "store_context_batch: success, total, succeeded, failed, results by index, message",
        "store_context_batch",
    ),
    Requirement(
        "CS-131",
        "atomic: any bad item is an error with their number and the first index, and nothing is "
        "written",
        "Batch Operations",
    ),
    Requirement(
        "CS-132",
        "not atomic: good items are done, bad ones reported; success only when none failed",
        "settled",
    ),
    Requirement("CS-133", "repeats inside a batch are merged", "settled"),
    Requirement(
        "CS-134",
        "update_context_batch: the same with context_id and updated_fields",
        "update_context_batch",
    ),
    Requirement(
        "CS-135",
        "delete_context_batch: criteria together; criteria_used names them",
        "delete_context_batch",
    ),
    Requirement(
        "CS-136",
        "no criterion, or source alone, is an error; older_than_days alone is not",
        "delete_context_batch",
    ),
    Requirement(
        "CS-137",
        "replies to searches and listings say how many passages wait for their embedding",
        "settled",
        "additional key note",
    ),
    Requirement(
        "CS-138",
        "storing an entry replies within ten seconds; what is not embedded by then is found by words",
        "settled",
        "additional text in message",
    ),
    Requirement(
        "CS-139",
        "unknown arguments are accepted and named in the reply, with what was meant",
        "settled",
        "additional key note",
    ),
)
