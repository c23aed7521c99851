"""Turns JSON into the classes of `answers`, and checks it on the way.

Fields that a class does not have are ignored, so a newer daemon can add some. A missing field is an error unless it may be
None or has a default. Texts with a fixed set of values are not checked against it: a newer daemon may have more.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pinfold.errors import ProtocolError

T = TypeVar("T")
Convert = Callable[[Any], Any]


class Mismatch(Exception):
    """A value does not have the expected type; `path` leads to it."""

    def __init__(self, problem: str):
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []


def decode(kind: type[T], value: object) -> T:
    """The value as this class; raises ProtocolError."""
    try:
        return cast(T, converter(kind)(value))
    except Mismatch as error:
        where = ".".join(reversed(error.path)) or "the whole"
        problem = f"unexpected answer from the daemon: {kind.__name__}: {where}: {error.problem}"
        raise ProtocolError(f"{problem}: compare `pinfold daemon status` with the version of this package") from None


@functools.cache
def converter(kind: Any) -> Convert:
    if kind is Any:
        return lambda value: value
    if kind in (str, int, bool):
        return functools.partial(plain, kind)
    if kind is float:
        return number
    if dataclasses.is_dataclass(kind):
        return object_converter(cast(type, kind))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return functools.partial(plain, str)
    if origin is list:
        return functools.partial(list_of, converter(arguments[0]))
    if origin is dict:
        return functools.partial(dict_of, converter(arguments[1]))
    if origin in (Union, types.UnionType):
        return union_converter(arguments)
    raise TypeError(f"no converter for {kind}")


def plain(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise Mismatch(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def number(value: Any) -> float:
    if type(value) not in (int, float):
        raise Mismatch(f"expected a number, got {type(value).__name__}")
    return float(value)


def list_of(convert: Convert, value: Any) -> list[Any]:
    return [at(str(index), convert, item) for index, item in enumerate(plain(list, value))]


def dict_of(convert: Convert, value: Any) -> dict[str, Any]:
    return {key: at(key, convert, item) for key, item in plain(dict, value).items()}


def at(key: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except Mismatch as error:
        error.path.append(key)
        raise


def union_converter(options: tuple[Any, ...]) -> Convert:
    """None or one other type, or classes that their `kind` tells apart."""
    others = [option for option in options if option is not type(None)]
    inner = converter(others[0]) if len(others) == 1 else tagged_converter(others)
    if len(others) == len(options):
        return inner
    return lambda value: None if value is None else inner(value)


def tagged_converter(options: list[Any]) -> Convert:
    classes = {option.kind: object_converter(option) for option in options}

    def convert(value: Any) -> Any:
        kind = plain(dict, value).get("kind")
        if kind not in classes:
            raise Mismatch(f"unknown kind {kind!r}")
        return classes[kind](value)

    return convert


def object_converter(kind: type) -> Convert:
    hints = get_type_hints(kind)
    fields = [
        (field.name, field.name.rstrip("_"), converter(hints[field.name]), may_be_missing(field, hints[field.name]))
        for field in dataclasses.fields(kind)
    ]

    def convert(value: Any) -> Any:
        given: dict[str, Any] = plain(dict, value)
        known: dict[str, Any] = {}
        for name, key, inner, optional in fields:
            if key in given:
                known[name] = at(key, inner, given[key])
            elif not optional:
                raise Mismatch(f"the field `{key}` is missing")
            elif optional == "none":
                known[name] = None
        return kind(**known)

    return convert


def may_be_missing(field: dataclasses.Field[Any], hint: Any) -> Literal["default", "none", ""]:
    has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    return "default" if has_default else "none" if type(None) in get_args(hint) else ""
