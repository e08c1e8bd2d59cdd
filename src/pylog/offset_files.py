"""`pylog.export_offsets` and `pylog.import_offsets`: the committed offsets of several groups in one file."""

from __future__ import annotations

from collections.abc import Iterable

from pylog.arguments import check_kind, items_of
from pylog.config import Durability
from pylog.groups.admin import ResetPlan, export_groups, import_groups
from pylog.groups.plan_file import PathLike
from pylog.store import Store


def export_offsets(store: Store, path: PathLike, groups: Iterable[str] | None = None) -> None:
    """Writes what groups have committed into one file: lines `group,topic,partition,offset`, as Kafka's tools do.

    Args:
        store: the `Store`.
        path: the file's path, which is replaced as a whole.
        groups: their names; all by default.

    Raises:
        GroupIdNotFoundError: one of them does not exist; nothing was written. As `Group.export`.

    >>> import pylog, tempfile
    >>> directory = tempfile.mkdtemp()
    >>> with pylog.open(directory) as store:
    ...     _ = store.create_topic("orders")
    ...     store.offsets.commit("billing", {("orders", 0): 0})
    ...     export_offsets(store, directory + "/offsets.csv")
    ...     import_offsets(store, directory + "/offsets.csv")[0].group_id
    'billing'
    """
    _check_store(store)
    export_groups(map(store.group, store.groups() if groups is None else items_of("groups", groups, "names")), path)


def import_offsets(
    store: Store, path: PathLike, *, dry_run: bool = False, durability: Durability | str | None = None
) -> list[ResetPlan]:
    """Sets the offsets of groups from a file of several groups.

    Args:
        store: the `Store`.
        path: the file's path.
        dry_run: only plan.
        durability: as for `OffsetStore.commit`.

    Returns:
        A plan for each group of the file, carried out unless `dry_run`: one group after the other, each as a whole.

    Raises:
        PylogError: as `Group.reset`. Nothing was written, unless members joined a group meanwhile or the disk failed: then the
            groups before it in the file are set.
    """
    _check_store(store)
    return import_groups(store.group, path, dry_run=dry_run, durability=durability)


def _check_store(store: object) -> None:
    check_kind("store", store, Store, "a Store; pylog.open returns one")
