"""The tools of context_server that write: store, update and delete, single and in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict

from mcpvectordb import (
    Change,
    Database,
    Entry,
    InvalidInput,
    MCPVectorDBError,
    Outcome,
    Stored,
    Updated,
)
from mcpvectordb_server.arguments import arguments_of, coerce
from mcpvectordb_server.surfaces.context_server.filters import Ids, Name, Source, possible
from mcpvectordb_server.surfaces.context_server.replies import GivenImage, images_of, message

# Characters of an argument: a little more than the images of one entry may have in base64.
MAX_TEXT = 150_000_000

Item = TypeVar("Item", Entry, Change)
Done = TypeVar("Done", Stored, Updated)


class StoreReply(TypedDict, total=False):
    """What a store did."""

    success: bool
    context_id: int
    thread_id: str
    message: str


class UpdateReply(TypedDict, total=False):
    """What an update did."""

    success: bool
    context_id: int
    updated_fields: list[str]
    message: str


class ContextDeleteReply(TypedDict, total=False):
    """What a delete did."""

    success: bool
    deleted_count: int
    message: str


class DeleteBatchReply(ContextDeleteReply, total=False):
    """What a delete by several criteria did."""

    criteria_used: list[str]


class StoreResult(TypedDict):
    """What became of one entry of a batch."""

    index: int
    success: bool
    context_id: int | None
    error: str | None


class UpdateResult(StoreResult):
    """What became of one update of a batch."""

    updated_fields: list[str] | None


class BatchReply(TypedDict, total=False):
    """How much of a batch was done."""

    success: bool
    total: int
    succeeded: int
    failed: int
    message: str
    note: str
    truncated: str


class StoreBatchReply(BatchReply, total=False):
    """The outcome of a batch of entries."""

    results: list[StoreResult]


class UpdateBatchReply(BatchReply, total=False):
    """The outcome of a batch of updates."""

    results: list[UpdateResult]


Atomic = Annotated[bool, "true: all or none; false: whatever can be done"]


def store_context(
    db: Database,
    *,
    thread_id: Annotated[Name, "The conversation or task that it belongs to"],
    source: Annotated[Source, "Who says it: 'user' or 'agent'"],
    text: Annotated[Name, "The text to remember"],
    images: Annotated[list[GivenImage] | None, "Images in base64"] = None,
    metadata: Annotated[dict[str, Any] | None, "Any JSON object, to filter by later"] = None,
    tags: Annotated[list[str] | None, "Tags; kept in lower case, each once"] = None,
) -> StoreReply:
    """Remember a text in a thread, with tags, metadata and images, so that it can be found again by
    any of them.

    Use this for whatever a later conversation or another agent should know. Saying the same again
    at once stores nothing new: the entry keeps its id, and tags, images and metadata that are given
    replace its own. For many entries use `store_context_batch`.
    """
    stored = db.memories.add(
        thread_id, source, text, metadata=metadata, tags=tags, images=images_of(images)
    )
    done = "stored" if stored.status == "added" else "updated"
    return StoreReply(
        success=True,
        context_id=stored.id,
        thread_id=stored.memory.thread,
        message=(
            f"Context {done} with {len(images or ())} "
            f"images{f'; {stored.note}' if stored.note else ' (embedding generated)'}"
        ),
    )


def update_context(
    db: Database,
    *,
    context_id: Annotated[int, Field(gt=0), "The entry's id"],
    text: Annotated[Name | None, "New text"] = None,
    metadata: Annotated[dict[str, Any] | None, "New metadata instead of all of the old"] = None,
    metadata_patch: Annotated[
        dict[str, Any] | None,
        (
            "Changes to the metadata (RFC 7396): null removes a key, objects are merged, anything "
            "else replaces. Not together with metadata"
        ),
    ] = None,
    tags: Annotated[list[str] | None, "New tags instead of the old; [] removes all"] = None,
    images: Annotated[
        list[GivenImage] | None, "New images instead of the old; [] removes all"
    ] = None,
) -> UpdateReply:
    """Change an entry: only what is given changes, and id, thread, source and time of creation
    always stay.

    Use metadata_patch to change single keys, such as a status. For many entries use
    `update_context_batch`.
    """
    done = db.memories.update(
        context_id,
        text=text,
        metadata=metadata,
        metadata_patch=metadata_patch,
        tags=tags,
        images=images_of(images),
    )
    fields = _fields(done)
    return UpdateReply(
        success=True,
        context_id=context_id,
        updated_fields=fields,
        message=f"Updated {', '.join(fields)}" + (f"; {done.note}" if done.note else ""),
    )


def delete_context(
    db: Database,
    *,
    context_ids: Annotated[Ids | None, "Entries to delete"] = None,
    thread_id: Annotated[
        Name | None, "Delete all entries of this thread; not used with context_ids"
    ] = None,
) -> ContextDeleteReply:
    """Delete entries by their ids, or a whole thread, with tags, images and embeddings, for good.

    Ask the user first. Ids and threads that do not exist are no error: deleted_count says how many
    entries went.
    """
    if context_ids is None and thread_id is None:
        raise InvalidInput("give context_ids or thread_id to say what to delete")
    which: dict[str, Any] = (
        {"threads": [thread_id]} if context_ids is None else {"ids": possible(context_ids)}
    )
    count = db.memories.delete(**which)
    return ContextDeleteReply(
        success=True, deleted_count=count, message=f"Deleted {count} context entries"
    )


OneEntry = Annotated[dict[str, Any], WithJsonSchema(arguments_of(store_context).schema)]
OneUpdate = Annotated[dict[str, Any], WithJsonSchema(arguments_of(update_context).schema)]


def store_context_batch(
    db: Database,
    *,
    entries: Annotated[
        list[OneEntry],
        Field(min_length=1, max_length=100),
        "Entries, each with the arguments of store_context",
    ],
    atomic: Atomic = True,
) -> StoreBatchReply:
    """Remember up to 100 entries at once, each as `store_context` would, in their order.

    With atomic false, `results` says for each entry by its index, from 0, whether it was stored and
    why not.
    """
    batch = BatchRequest(
        entries, lambda item: db.memories.checked(_entry(item)), store_context, "stored", atomic
    )
    done = batch.done(db.memories.add_many)
    return StoreBatchReply(
        **batch.summary(done),
        results=[
            StoreResult(
                index=each.index,
                success=each.result is not None,
                context_id=each.result.id if each.result else None,
                error=message(each.error) if each.error else None,
            )
            for each in done
        ],
    )


def update_context_batch(
    db: Database,
    *,
    updates: Annotated[
        list[OneUpdate],
        Field(min_length=1, max_length=100),
        "Updates, each with the arguments of update_context",
    ],
    atomic: Atomic = True,
) -> UpdateBatchReply:
    """Change up to 100 entries at once, each as `update_context` would, in their order.

    With atomic false, `results` says for each update by its index, from 0, whether it was made and
    why not.
    """
    batch = BatchRequest(
        updates, lambda item: db.memories.checked(_change(item)), update_context, "updated", atomic
    )
    done = batch.done(db.memories.update_many)
    return UpdateBatchReply(
        **batch.summary(done),
        results=[
            UpdateResult(
                index=each.index,
                success=each.result is not None,
                context_id=_context_id(updates[each.index]),
                updated_fields=_fields(each.result) if each.result else None,
                error=message(each.error) if each.error else None,
            )
            for each in done
        ],
    )


def delete_context_batch(
    db: Database,
    *,
    context_ids: Annotated[Ids | None, "Only these entries"] = None,
    thread_ids: Annotated[
        list[Name] | None, Field(min_length=1), "Only entries of these threads"
    ] = None,
    source: Annotated[
        Source | None, "Only entries by this source; not as the only criterion"
    ] = None,
    older_than_days: Annotated[
        int | None, Field(gt=0), "Only entries created more than so many days ago"
    ] = None,
) -> DeleteBatchReply:
    """Delete all entries that fulfil every given criterion, with tags, images and embeddings.
    IRREVERSIBLE.

    Ask the user first. At least one criterion besides source is needed.
    """
    if context_ids is None and thread_ids is None and older_than_days is None:
        raise InvalidInput(
            "give context_ids, thread_ids or older_than_days to say what to delete"
            + ("; source alone would delete too much" if source else "")
        )
    count = db.memories.delete(
        None if context_ids is None else possible(context_ids),
        threads=thread_ids,
        source=source,
        older_than_days=older_than_days,
    )
    used = {
        "context_ids": context_ids and f"{len(context_ids)} given",
        "thread_ids": thread_ids and ", ".join(thread_ids),
        "source": source,
        "older_than_days": older_than_days,
    }
    return DeleteBatchReply(
        success=True,
        deleted_count=count,
        message=f"Deleted {count} context entries",
        criteria_used=[f"{name}: {value}" for name, value in used.items() if value is not None],
    )


class BatchRequest(Generic[Item]):
    """The usable items of a batch, and the errors of the others, by their index.

    `single` is the tool that takes one item. An atomic batch with an item that cannot be used
    raises InvalidInput before anything is written.
    """

    def __init__(
        self,
        raw: Sequence[dict[str, Any]],
        read: Callable[[dict[str, Any]], Item],
        single: Callable[..., Any],
        verb: str,
        atomic: bool,
    ) -> None:
        self.usable: dict[int, Item] = {}
        self.wrong: dict[int, MCPVectorDBError] = {}
        self.verb, self.atomic = verb, atomic
        remarks = [arguments_of(single).ignored(item) for item in raw]
        self.ignored = next(
            (f"index {index}: {each}" for index, each in enumerate(remarks) if each), ""
        )
        for index, item in enumerate(raw):
            try:
                self.usable[index] = read(item)
            except MCPVectorDBError as error:
                self.wrong[index] = error
        if atomic and self.wrong:
            first = min(self.wrong)
            raise InvalidInput(
                f"{len(self.wrong)} of {len(raw)} items cannot be {verb}, so none was; "
                f"the first is at index {first}: {message(self.wrong[first])}"
            )

    def done(self, apply: Callable[..., list[Outcome[Done]]]) -> list[Outcome[Done]]:
        """Write the usable items by `apply`; returns the outcome of every item, in their order."""
        outcomes = apply(list(self.usable.values()), atomic=self.atomic)
        done = {
            index: Outcome(index=index, result=each.result, error=each.error)
            for index, each in zip(self.usable, outcomes, strict=True)
        }
        failed: dict[int, Outcome[Done]] = {
            index: Outcome(index=index, error=error) for index, error in self.wrong.items()
        }
        return [each for _, each in sorted((done | failed).items())]

    def summary(self, done: Sequence[Outcome[Done]]) -> BatchReply:
        """The part of the reply about the whole batch."""
        results = [each.result for each in done if each.result is not None]
        note = next((each.note for each in results if each.note), "")
        reply = BatchReply(
            success=len(results) == len(done),
            total=len(done),
            succeeded=len(results),
            failed=len(done) - len(results),
            message=f"{len(results)} of {len(done)} entries {self.verb}"
            + (f"; {note}" if note else ""),
        )
        if self.ignored:
            reply["note"] = self.ignored
        return reply


def _entry(item: dict[str, Any]) -> Entry:
    given = arguments_of(store_context).read(item, max_text=MAX_TEXT)
    return Entry(
        thread=given["thread_id"],
        source=given["source"],
        text=given["text"],
        metadata=given["metadata"],
        tags=given["tags"],
        images=images_of(given["images"]),
    )


def _change(item: dict[str, Any]) -> Change:
    given = arguments_of(update_context).read(item, max_text=MAX_TEXT)
    return Change(
        id=given["context_id"],
        text=given["text"],
        metadata=given["metadata"],
        metadata_patch=given["metadata_patch"],
        tags=given["tags"],
        images=images_of(given["images"]),
    )


def _fields(done: Updated) -> list[str]:
    return ["text_content" if field == "text" else field for field in done.fields]


def _context_id(item: dict[str, Any]) -> int | None:
    """The id of the entry that an update is for, if it has a valid one."""
    id = coerce(int, item.get("context_id"))
    return id if isinstance(id, int) and not isinstance(id, bool) else None
