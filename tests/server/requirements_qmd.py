"""What the surface qmd must do: one row per behaviour, each tied to at least one test by its id.

`source` is the section of the specification (or "settled" for what it leaves open and we decided);
`divergence` says in which way we knowingly differ from the text or from the program behind it, ""
where we do not.
"""

from __future__ import annotations

from tests.server.requirements_mcpvectordb import Requirement

REQUIREMENTS = (
    Requirement(
        "QM-001",
        "six tools with exactly the specified parameters, types, defaults and required ones",
        "MCP Tools",
    ),
    Requirement("QM-002", "all tools are read-only, idempotent and of a closed world", "settled"),
    Requirement(
        "QM-003",
        "the handshake names surface version 1.0.0 and says that text out of documents is data",
        "settled",
    ),
    Requirement(
        "QM-004",
        "beside another surface whose search comes first, its own is qmd_search",
        "settled",
    ),
    Requirement(
        "QM-005", "what other surfaces ingested is found too: a library is a collection", "settled"
    ),
    Requirement(
        "QM-010",
        'text: Found N result(s) for "q":, a blank line, then #docid NN% file - title per hit',
        "search",
    ),
    Requirement(
        "QM-011", 'nothing found: No results found for "q", results [], no error', "search"
    ),
    Requirement(
        "QM-012",
        "result items have exactly docid, file, title, score, context, snippet",
        "SearchResultItem",
    ),
    Requirement(
        "QM-013", "docid is # and the first six hex digits of the SHA-256 of the content", "settled"
    ),
    Requirement("QM-014", "file is collection/relative/path", "settled"),
    Requirement(
        "QM-015", "title is the first heading, else the name without its extension", "settled"
    ),
    Requirement(
        "QM-016",
        "context joins descriptions from general to specific with a blank line; null without any",
        "settled",
        "matched by folders, not by characters: api is not about api-v2",
    ),
    Requirement("QM-017", "describe takes effect at once in a running server", "settled"),
    Requirement(
        "QM-018",
        "snippet: the line with most words, one before, two after, at most 300 characters, N: text",
        "search",
    ),
    Requirement(
        "QM-019",
        "line numbers are those of the file",
        "search",
        "the program behind it shifts them",
    ),
    Requirement(
        "QM-020", "score is rounded to two decimals; the percentage is the same number", "search"
    ),
    Requirement(
        "QM-021",
        "minScore compares the unrounded score in search and vsearch, the rounded one in query",
        "settled",
    ),
    Requirement(
        "QM-022",
        "limit defaults to 10; an explicit 0 gives nothing",
        "search",
        "the program behind it takes 0 for 10",
    ),
    Requirement(
        "QM-023",
        "collection filters before the cut; an unknown one finds nothing",
        "search",
        "the text says after, which starves small collections",
    ),
    Requirement(
        "QM-030",
        "search wants all words, each a prefix, in path, title or text",
        "search",
        "stop words are let go when nothing has them all",
    ),
    Requirement(
        "QM-031",
        "phrases, exclusions, hyphens, dots, underscores and CJK as in later versions",
        "settled",
    ),
    Requirement(
        "QM-032",
        "exclusions alone, punctuation and operators find nothing and never fail",
        "settled",
    ),
    Requirement(
        "QM-033",
        "score is |bm25| / (1 + |bm25|), best first; title 4, path 1.5, body 1",
        "settled",
        "an older formula ranks the best last",
    ),
    Requirement("QM-034", "one hit per document", "settled"),
    Requirement(
        "QM-040", "vsearch without a vector index: isError with the specified text", "vsearch"
    ),
    Requirement(
        "QM-041",
        "vsearch ranks documents by the cosine of their best chunk, minScore 0.3",
        "vsearch",
    ),
    Requirement("QM-042", "vsearch says why when the model is not to be had", "settled"),
    Requirement(
        "QM-050",
        "query fuses both legs of the query and of what was learned, then reranks the best 30",
        "query",
        "expansion is feedback from the first results, the reranker a local cross-encoder",
    ),
    Requirement(
        "QM-051", "without a reranker query keeps the order of ranks with score 1/rank", "settled"
    ),
    Requirement("QM-052", "without vectors query goes by words, without an error", "query"),
    Requirement(
        "QM-053",
        "query says which steps were taken and why others were not",
        "settled",
        "additional keys steps and skipped, and a second text",
    ),
    Requirement(
        "QM-060",
        "get answers one embedded resource with uri, name, title, mimeType and text on the wire",
        "get",
    ),
    Requirement(
        "QM-061", "file.md:LINE starts there and beats fromLine; file.md:FROM:COUNT too", "get"
    ),
    Requirement(
        "QM-062",
        "fromLine below 1 is 1; beyond the end the text is empty; maxLines has no marker here",
        "settled",
    ),
    Requirement("QM-063", "lineNumbers puts N: before every line, from fromLine or 1", "get"),
    Requirement(
        "QM-064", "<!-- Context: … --> and a blank line come first where there is a context", "get"
    ),
    Requirement(
        "QM-065", "URIs encode each segment as encodeURIComponent does and keep slashes", "get"
    ),
    Requirement(
        "QM-066",
        "paths with and without collection, ends of paths, files, ~, docids, qmd:// URIs are names",
        "settled",
    ),
    Requirement(
        "QM-067", "not found: isError, the name as given, then up to five similar paths", "get"
    ),
    Requirement(
        "QM-068",
        "every suggestion can be fetched; base names are compared too; none for a docid",
        "settled",
    ),
    Requirement("QM-069", "a document longer than a reply comes in parts", "settled"),
    Requirement(
        "QM-070", "multi_get takes a glob over paths with and without collection", "multi_get"
    ),
    Requirement(
        "QM-071", "in globs * stays in its folder, **/ crosses folders, {a,b} works", "settled"
    ),
    Requirement(
        "QM-072", "multi_get takes a list with commas, of any names that get takes", "multi_get"
    ),
    Requirement(
        "QM-073",
        "documents above maxBytes (10240) of UTF-8 are named in the specified words and not read",
        "multi_get",
    ),
    Requirement("QM-074", "notices come before documents", "multi_get"),
    Requirement(
        "QM-075", "missing names are told with suggestions, the others are returned", "settled"
    ),
    Requirement("QM-076", "nothing matched is an error", "multi_get"),
    Requirement(
        "QM-077",
        "maxLines ends a text with [... truncated N more lines], without a number",
        "multi_get",
    ),
    Requirement(
        "QM-080", "status has the specified text and structure, newest collection first", "status"
    ),
    Requirement(
        "QM-081",
        "needsEmbedding counts contents; copies of embedded ones are not pending",
        "settled",
    ),
    Requirement(
        "QM-082", "a collection without documents was last updated when it was made", "settled"
    ),
    Requirement(
        "QM-090",
        "qmd://{+path} reads with line numbers and context; nothing is listed",
        "MCP Resources",
    ),
    Requirement(
        "QM-091",
        "paths may be encoded once, twice, or with %2F; the exact one wins over an end",
        "MCP Resources",
    ),
    Requirement("QM-092", "an unknown path reads as a text that says so", "settled"),
    Requirement(
        "QM-093",
        "the prompt query is one user message that names all six tools as they are called here",
        "MCP Prompts",
        "in our own words; it does not promise resources/list",
    ),
    Requirement(
        "QM-100", "every failure is isError with one text, without structured content", "settled"
    ),
    Requirement(
        "QM-101",
        "missing arguments and wrong types are such a failure; 5.0 is an integer, true is none",
        "settled",
    ),
    Requirement("QM-102", "structured replies fit the published output schema", "settled"),
    Requirement("QM-103", "a defect is told without paths, SQL or traceback", "settled"),
    Requirement(
        "QM-104",
        "replies to searches and listings say how many passages wait for their embedding",
        "settled",
        "additional key note and text block",
    ),
    Requirement(
        "QM-105",
        "unknown arguments are accepted and named in the reply, with what was meant",
        "settled",
        "additional text block",
    ),
)
