"""The commands publish and grant: a file in PostgreSQL, and who may read it there."""

from __future__ import annotations

import click

from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import json_option
from mcpvectordb.cli.output import bar, busy, complain, print_json, quantity, show

_NOUNS = ("document", "memory", "vector")


@click.command()
@click.argument("url", metavar="URL")
@click.option("--origin", metavar="NAME", help="The name under which this file is published.")
@click.option(
    "--library",
    "-l",
    "libraries",
    multiple=True,
    metavar="NAME",
    help="Publish the documents of this library and nothing else. Repeatable.",
)
@json_option
@click.pass_context
def publish(
    context: click.Context, url: str, origin: str | None, libraries: tuple[str, ...], as_json: bool
) -> None:
    """Bring the database into PostgreSQL, where many can search it.

    URL is postgresql://user:password@host/name; without a password, PGPASSWORD and ~/.pgpass are
    asked. The first time everything is sent, later what changed. After an interruption the same
    command goes on.
    """
    with opened(context) as db, bar("publishing", "items") as progress:
        done = db.publish(url, origin=origin, libraries=libraries or None, progress=progress)
    if as_json:
        print_json(done)
        return
    show(f"published as {done.origin} in {done.seconds:.1f} s")
    for noun, each in zip(_NOUNS, (done.documents, done.memories, done.vectors), strict=True):
        if each.changes or each.unchanged:
            show(
                f"  {quantity(each.changes + each.unchanged - each.deleted, noun)}: "
                f"{each.added:,} added, {each.updated:,} updated, {each.deleted:,} deleted, "
                f"{each.unchanged:,} unchanged"
            )
    if done.waiting:
        complain(
            f"{done.waiting:,} passages wait for their embedding and are found by words: run "
            "`embed`, then publish again"
        )
    if done.notice:
        complain(done.notice)


@click.command()
@click.argument("url", metavar="URL")
@click.argument("role")
@click.option(
    "--publish", "right", flag_value="publish", default=None, help="Publish, and not only read."
)
@click.option("--none", "right", flag_value="none", help="Take back all that was granted.")
@click.option(
    "--origin", "only", multiple=True, metavar="NAME", help="Only this origin. Repeatable."
)
def grant(url: str, role: str, right: str | None, only: tuple[str, ...]) -> None:
    """Let a role of PostgreSQL read what is published at URL, or publish there.

    The role must exist, and you must own the schema mcpvectordb. Without --origin it is about all
    origins, also later ones; with it, row-level security hides the others. What was granted to the
    role before is replaced.
    """
    from mcpvectordb.postgres import require_driver

    require_driver()
    from mcpvectordb.postgres import access

    with busy("granting"):
        if right == "none":
            access.revoke(url, role)
        else:
            access.grant(url, role, "publish" if right else "read", only or None)
    what = {"none": "may do nothing", "publish": "may read and publish"}.get(
        right or "", "may read"
    )
    show(f"{role} {what}" + ("" if right == "none" else f": {', '.join(only) or 'all origins'}"))
