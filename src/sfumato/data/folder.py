"""Your own images: a folder (or zip) with one sub-folder per class, optionally below `train` and `test`."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from sfumato.contracts import Reading
from sfumato.data._archive import ZipTree
from sfumato.data._decode import Unreadable
from sfumato.data._labels import check_classes, number_words
from sfumato.data._layout import layout
from sfumato.data._reader import check_split
from sfumato.data._records import TreeRecords
from sfumato.data._tree import IMAGES, DiskTree, Tree
from sfumato.errors import DataError, printable


class Folder(TreeRecords):
    """Images in class folders; a class is a folder's name, sorted, and an empty folder is a class too.

    Every file in a class folder must be an image, system files apart. Where the classes are listed, the files of
    other folders stay as absent records.
    """

    @classmethod
    def recognises(cls, where: str) -> bool:
        return layout(where) == "folder"

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return tuple(_split_roots(_tree(where)))

    def __init__(self, where: str, reading: Reading) -> None:
        self._tree = _tree(where)
        roots = _split_roots(self._tree)
        check_split(reading.split, tuple(roots), where=where)
        if reading.classes is None:
            # From all splits together, so that a class has the same number in each.
            names = {name for root in roots.values() for name in _class_folders(self._tree, root)}
            _check_clash(sorted(names), where)
            classes = check_classes(sorted(names), where=where) if names else ()
        else:
            classes = check_classes(reading.classes, where=where)
        files, words = [], []
        for name in _class_folders(self._tree, roots[reading.split]):
            inside = _class_files(self._tree, roots[reading.split] + name)
            files += inside
            words += [name] * len(inside)
        self._names, self._reasons = files, {}
        labels = number_words(words, classes)
        self._settle(where, reading, name=Path(where).resolve().stem, classes=classes, labels=labels)


def _tree(where: str) -> Tree:
    path = Path(where)
    return DiskTree(path) if path.is_dir() else ZipTree(path)


def _split_roots(tree: Tree) -> dict[str, str]:
    """Each split and the prefix of its names."""
    prefix = ""
    folders = _listed(tree, prefix)
    if isinstance(tree, ZipTree) and len(folders) == 1 and not tree.files():  # packed with its own folder around it
        inner = _listed(tree, folders[0] + "/")
        if inner:
            prefix, folders = folders[0] + "/", inner
    if "train" in folders and set(folders) <= {"train", "test", "val", "valid", "validation"}:
        return {split: f"{prefix}{split}/" for split in ("train", "test") if split in folders}
    if "train" in folders or "test" in folders:
        raise DataError(
            f"Expected class folders, or train and test only, got both: {printable(', '.join(folders[:6]))}.",
            where=tree.where,
            fix="move the class folders below train, or rename the class",
        )
    return {"train": prefix}


def _listed(tree: Tree, under: str) -> list[str]:
    try:
        return tree.folders(under.rstrip("/"))
    except Unreadable as reason:
        raise DataError(
            f"Expected a folder that can be listed, got one that is not: {printable(under)} ({reason}).",
            where=tree.where,
            fix="check its permissions and links",
        ) from reason


def _class_folders(tree: Tree, root: str) -> list[str]:
    folders = _listed(tree, root)
    loose = [name for name in tree.files(root.rstrip("/")) if name.casefold().endswith(IMAGES)]
    if loose:
        raise DataError(
            f"Expected every image in a class folder, got {len(loose)} beside them, such as "
            f"{printable(root + loose[0])}.",
            where=tree.where,
            fix="move each image into a sub-folder named after its class, or add a table (CSV) of labels",
        )
    return folders


def _class_files(tree: Tree, folder: str) -> list[str]:
    nested = _listed(tree, folder)
    if nested:
        raise DataError(
            f"Expected only images in a class folder, got a folder in it: {printable(f'{folder}/{nested[0]}')}.",
            where=tree.where,
            fix="move its images up, or make it a class of its own",
        )
    return [f"{folder}/{name}" for name in tree.files(folder)]


def _check_clash(names: list[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        folded = unicodedata.normalize("NFC", name).casefold()
        if folded in seen:
            raise DataError(
                f"Expected class folders that differ in more than case, got '{printable(seen[folded])}' and "
                f"'{printable(name)}'.",
                where=where,
                fix="merge or rename them: some systems cannot tell them apart",
            )
        seen[folded] = name
