"""Values within values: finds what is to be replaced in them, and builds copies with the replacements. Pure.

`results.py` replaces artifacts, `arguments.py` handles; most arguments have none, and `plain_copy` is for those. A
container is a list, a tuple, a mapping, a dataclass or a pydantic model; everything else is opaque and shared by
original and copy. Keys are never touched. The original is never changed. No depth is too deep and cycles stay cycles,
since nothing here calls itself.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ("Nested", "plain_copy")

_SCALARS: Final = frozenset({int, float, bool, type(None), bytes})
_OPAQUE: Final = 0
_CONTAINER: Final = 1
_LEAF: Final = 2
_NEW: Final = 3


class Nested:
    """One value with everything in it, and the places where something is to be replaced.

    Args:
        value: the outermost value.
        leaf: the type of what may be replaced; its values are not looked into.
        wanted: says of a value of that type whether it is to be replaced.
        fresh: copy plain containers even where nothing in them is replaced, so that what is done to the copy does not
            reach the original. Else a container without replacements is shared with it.
    """

    def __init__(
        self, value: object, leaf: type, wanted: Callable[[Any], bool] = lambda _: True, *, fresh: bool = False
    ) -> None:
        self._value = value
        self._leaf = leaf
        self._wanted = wanted
        self._kinds: dict[type, int] = {}
        self._nodes: dict[int, object] = {}  # keeps every container alive, so that no id is used twice
        self._slots: dict[int, list[tuple[Any, object]]] = {}  # what in a container is a container or to be replaced
        self._leaves: dict[int, object] = {}
        self._parents: dict[int, list[int]] = {}
        self._touched: set[int] = set()
        self._plain: set[int] = set()
        self._discover()
        self._copied = self._with_parents(self._touched) | (self._plain if fresh else set())

    @property
    def leaves(self) -> list[object]:
        """What is to be replaced, each object once, in the order in which a reader meets it."""
        return list(self._leaves.values())

    @property
    def containers(self) -> list[object]:
        """Every container in the value, each once."""
        return list(self._nodes.values())

    def replaced(self, replacement: Callable[[object, object], object]) -> Any:  # noqa: ANN401
        """Return the value with its leaves replaced; to be called once.

        Args:
            replacement: called with a leaf and the container that it is in (None for the value itself).
        """
        shells = [(key, node) for key in self._copied if not isinstance(node := self._nodes[key], tuple)]
        copies: dict[int, Any] = {key: _shell(node) for key, node in shells}

        def new(child: object, parent: object) -> object:
            return replacement(child, parent) if id(child) in self._leaves else copies.get(id(child), child)

        for key in self._copied:
            if key not in copies:
                self._build_tuple(key, copies, new)
        for key, node in shells:
            if slots := self._slots[key]:
                _fill(copies[key], node, [(name, new(child, node)) for name, child in slots])
        return new(self._value, None)

    def _discover(self) -> None:
        if not self._is_open(self._value):
            return
        kinds, nodes, parents = self._kinds, self._nodes, self._parents
        waiting: list[tuple[object, int, bool]] = [(self._value, 0, True)]
        while waiting:
            value, parent, plain = waiting.pop()
            key = id(value)
            if kinds[type(value)] == _LEAF:
                self._leaves[key] = value
                self._touched.add(parent)
                continue
            known = key in nodes
            if known:
                parents[key].append(parent)
                if not plain or key in self._plain:
                    continue
            else:
                nodes[key] = value
                parents[key] = [parent]
                self._slots[key] = [slot for slot in _items(value) if self._is_open(slot[1])]
            if plain and isinstance(value, (dict, list, tuple)):
                self._plain.add(key)
            else:
                plain = False
            for _, child in reversed(self._slots[key]):
                waiting.append((child, key, plain))

    def _is_open(self, value: object) -> bool:
        """Say whether there is something to do with a value: it is a container, or to be replaced."""
        kind = self._kinds.get(type(value), _NEW)
        if kind == _OPAQUE:
            return False
        if kind == _NEW:
            kind = _LEAF if isinstance(value, self._leaf) else _CONTAINER if _is_container(value) else _OPAQUE
            self._kinds[type(value)] = kind
        return kind == _CONTAINER or (kind == _LEAF and self._wanted(value))

    def _with_parents(self, keys: set[int]) -> set[int]:
        """Add every container that holds one of these, at any distance."""
        reached: set[int] = set()
        waiting = list(keys)
        while waiting:
            key = waiting.pop()
            if key in self._nodes and key not in reached:
                reached.add(key)
                waiting.extend(self._parents[key])
        return reached

    def _build_tuple(self, key: int, copies: dict[int, Any], new: Callable[[object, object], object]) -> None:
        """Build a tuple after those in it; it cannot hold itself but through a container that has its copy already."""
        waiting = [key]
        while waiting:
            key = waiting[-1]
            if key in copies:
                waiting.pop()
                continue
            slots = self._slots[key]
            missing = [id(child) for _, child in slots if id(child) in self._copied and id(child) not in copies]
            if missing:
                waiting.extend(missing)
                continue
            node: Any = self._nodes[key]
            items = list(node)
            for index, child in slots:
                items[index] = new(child, node)
            copies[key] = node._make(items) if hasattr(node, "_make") else tuple(items)


def plain_copy(value: dict[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
    """Copy what a model usually gives, and return the copy and the texts in it, keys aside.

    That is a tree of dicts, lists and scalars; None for all else, such as a list that is in two places. Every container
    is copied. Measured on 2026-11-28: 3,000 containers in 2 ms, and in 8 ms by `Nested`.
    """
    top = value.copy()
    copies: list[Any] = [top]
    known = {id(value)}
    texts: list[str] = []
    while copies:
        below: list[Any] = []
        originals: list[object] = []
        for node in copies:  # what is in it are originals still
            for key, child in node.items() if type(node) is dict else enumerate(node):
                kind = type(child)
                if kind is str:
                    texts.append(child)
                elif kind is dict or kind is list:
                    originals.append(child)
                    node[key] = child = child.copy()  # noqa: PLW2901
                    below.append(child)
                elif kind not in _SCALARS:
                    return None
        ids = set(map(id, originals))
        if len(ids) < len(originals) or not known.isdisjoint(ids):
            return None
        known |= ids
        copies = below
    return top, texts


def _is_container(value: object) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(value, (list, tuple, Mapping, BaseModel)) or dataclasses.is_dataclass(value)


def _items(node: Any) -> Iterable[tuple[Any, object]]:  # noqa: ANN401
    """What is in a container, with the key, index or name under which it is there."""
    if isinstance(node, (list, tuple)):
        return enumerate(node)
    if isinstance(node, (dict, Mapping)):
        return node.items()
    if isinstance(node, BaseModel):
        return (*node.__dict__.items(), *(node.__pydantic_extra__ or {}).items())
    return [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node) if hasattr(node, field.name)]


def _shell(node: Any) -> Any:  # noqa: ANN401
    """Begin the copy of a container; what is new in it is set when every container has begun."""
    if type(node) is dict or type(node) is list:
        return node.copy()
    return dict(node) if isinstance(node, Mapping) and not isinstance(node, dict) else copy.copy(node)


def _fill(shell: Any, node: Any, changes: list[tuple[Any, object]]) -> None:  # noqa: ANN401
    if isinstance(shell, (dict, list)):
        for name, value in changes:
            shell[name] = value
    elif isinstance(shell, BaseModel):
        extra = shell.__pydantic_extra__
        for name, value in changes:
            target: Any = shell.__dict__ if name in node.__dict__ or extra is None else extra
            target[name] = value
    else:
        for name, value in changes:
            object.__setattr__(shell, name, value)  # a frozen one refuses its own
