"""Hooks around forks for user code: stores or pools that hold threads, locks or open files.

omniloom's own workers are spawned and need none; with ``start_method="fork"``, and wherever else a process forks, these
are called. Hooks are held weakly: what nobody else holds is called no more.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

Hook = Callable[[], None]


class WeakCallbacks:
    """Functions and bound methods, each once and held weakly, in the order of their coming."""

    def __init__(self) -> None:
        self._hooks: dict[tuple[int, ...], weakref.ref[Any]] = {}  # by identity: objects need not be hashable

    def add_hook(self, hook: Hook) -> None:
        """Add a function or a bound method."""
        owner = getattr(hook, "__self__", None)
        mark = (id(hook),) if owner is None else (id(owner), id(getattr(hook, "__func__", None)))
        kind: Any = weakref.ref if owner is None else weakref.WeakMethod
        self._hooks[mark] = kind(hook, lambda _: self._hooks.pop(mark, None))

    def run(self) -> None:
        """Call those that are still there."""
        for held in list(self._hooks.values()):
            hook = held()
            if hook is not None:
                hook()


_BEFORE, _IN_PARENT, _IN_CHILD = WeakCallbacks(), WeakCallbacks(), WeakCallbacks()
os.register_at_fork(before=_BEFORE.run, after_in_parent=_IN_PARENT.run, after_in_child=_IN_CHILD.run)

before_fork_hook = _BEFORE.add_hook
after_in_parent_fork_hook = _IN_PARENT.add_hook
after_in_child_fork_hook = _IN_CHILD.add_hook


class ForkMixin:
    """Calls its ``__before_fork__``, ``__after_in_parent_fork__`` and ``__after_in_child_fork__`` around forks.

    A class overrides those that it needs. An object that is unpickled is told of forks, too.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._register()

    def __setstate__(self, state: Any) -> None:
        """Take the state of a pickled object, and be told of forks."""
        self.__dict__.update(state)
        self._register()

    def _register(self) -> None:
        for name, add in _METHODS.items():
            if getattr(type(self), name) is not getattr(ForkMixin, name):
                add(getattr(self, name))

    def __before_fork__(self) -> None:
        """Called before the process forks."""

    def __after_in_parent_fork__(self) -> None:
        """Called in the parent after a fork."""

    def __after_in_child_fork__(self) -> None:
        """Called in the child after a fork."""


class DataclassForkMixin(ForkMixin):
    """The same for dataclasses, whose own ``__init__`` does not call this one's."""

    def __post_init__(self) -> None:
        self._register()


_METHODS = {
    "__before_fork__": before_fork_hook,
    "__after_in_parent_fork__": after_in_parent_fork_hook,
    "__after_in_child_fork__": after_in_child_fork_hook,
}
