"""Stores imported vectors under their ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mcpvectordb.errors import InvalidInput
from mcpvectordb.importers.items import ImportedVector
from mcpvectordb.importers.report import ANOTHER, ImportMark, ImportReport, Marker, Outcome
from mcpvectordb.records import Condition, Metric
from mcpvectordb.vectors.shelf import Vectors
from mcpvectordb.vectors.vector import Vector

SHELF = "vectors"
Group = tuple[str, str, Metric]


class VectorImport:
    """Stores vectors in batches."""

    def __init__(self, vectors: Vectors, marker: Marker, report: ImportReport) -> None:
        self._vectors, self._marker, self._report = vectors, marker, report

    def write(self, items: Sequence[ImportedVector]) -> None:
        """Store a batch, a transaction for each store and namespace in it."""
        groups: defaultdict[Group, dict[str, ImportedVector]] = defaultdict(dict)
        for item in items:
            if reason := _unusable(item):
                self._report.skip(item.id, reason)
            else:
                groups[item.store, item.namespace, item.metric][item.id] = item
        for group, by_id in groups.items():
            try:
                self._write(group, list(by_id.values()))
            except InvalidInput as error:  # of the names: all items of the group have them
                for id in by_id:
                    self._report.skip(id, str(error))

    def _write(self, group: Group, items: Sequence[ImportedVector]) -> None:
        import numpy as np

        store, namespace, metric = group
        found = self._vectors.browse(
            store=store,
            namespace=namespace,
            where=[Condition("id", "in", [item.id for item in items])],
            limit=len(items),
        )
        here = {vector.id: vector for vector in found}
        outcomes = {item.id: self._outcome(item, here.get(item.id)) for item in items}
        to_write = [item for item in items if outcomes[item.id] in ("added", "changed")]
        if to_write and not self._report.dry_run:
            self._vectors.add_many(
                [item.id for item in to_write],
                [np.frombuffer(item.values, "<f4") for item in to_write],
                store=store,
                namespace=namespace,
                metadata=[self._marker.mark(item).added_to(item.metadata) for item in to_write],
                metric=metric,
            )
        for id, outcome in outcomes.items():
            if outcome is None:
                self._report.skip(id, ANOTHER)
            else:
                self._report.count(SHELF, outcome)

    def _outcome(self, item: ImportedVector, here: Vector | None) -> Outcome | None:
        """What is to be done with an item; None if its place is taken by another vector."""
        if here is None:
            return "added"
        mark, before = self._marker.mark(item), ImportMark.read(here.metadata)
        if before is not None and mark.of_same_item(before):
            return "known" if mark.hash == before.hash else "changed"
        return "known" if here.raw == item.values else None


def _unusable(item: ImportedVector) -> str:
    """Why an embedding cannot be stored; "" if it can."""
    import numpy as np

    if not item.values or len(item.values) % 4:
        return "an embedding that is no list of float32 numbers"
    if not np.isfinite(np.frombuffer(item.values, "<f4")).all():
        return "an embedding with numbers that are not finite"
    return ""
